"""The `train:` section of an experiment. Imports neither torch nor numpy: errors must be quick."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Schema(BaseModel):
    """Base of every schema: unknown keys are refused and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=False)


class GroupConfig(Schema):
    """Parameters that train at their own learning rate."""

    prefix: str = Field(
        min_length=1,
        description="Start of the parameter names, e.g. `backbone.body`; the longest match counts.",
    )
    lr_factor: float = Field(1.0, ge=0, description="Times the optimizer's lr.")
    weight_decay_factor: float = Field(1.0, ge=0, description="Times the optimizer's weight_decay.")


class _OptimizerBase(Schema):
    lr: float = Field(gt=0, description="Learning rate at schedule factor 1.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of all parameters.")
    norm_weight_decay: float | None = Field(
        None, ge=0, description="Weight decay of normalisation layers; null: as all others."
    )
    groups: tuple[GroupConfig, ...] = Field((), description="Groups by parameter-name prefix.")


class SgdConfig(_OptimizerBase):
    """Stochastic gradient descent."""

    name: Literal["sgd"]
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum.")
    nesterov: bool = Field(False, description="Nesterov momentum.")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SgdConfig:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class AdamConfig(_OptimizerBase):
    """Adam (weight decay added to the gradient)."""

    name: Literal["adam"]
    betas: tuple[float, float] = Field(
        (0.9, 0.999), description="Decay of both moments, in [0, 1)."
    )
    eps: float = Field(1e-8, gt=0, description="Added to the denominator.")


class AdamWConfig(_OptimizerBase):
    """AdamW (decoupled weight decay)."""

    name: Literal["adamw"]
    betas: tuple[float, float] = Field(
        (0.9, 0.999), description="Decay of both moments, in [0, 1)."
    )
    eps: float = Field(1e-8, gt=0, description="Added to the denominator.")


OptimizerConfig = Annotated[SgdConfig | AdamConfig | AdamWConfig, Field(discriminator="name")]


class _ScheduleBase(Schema):
    per: Literal["epoch", "update"] = Field(
        "epoch", description="Whether the factor changes with the epoch or with every update."
    )


class ConstantConfig(_ScheduleBase):
    """Factor 1 throughout."""

    name: Literal["constant"]


class StepConfig(_ScheduleBase):
    """Times `gamma` after every `step_size` epochs (or updates)."""

    name: Literal["step"]
    step_size: int = Field(gt=0, description="Epochs (or updates) between two decays.")
    gamma: float = Field(0.1, gt=0, description="Factor of each decay.")


class MultistepConfig(_ScheduleBase):
    """Times `gamma` at each milestone."""

    name: Literal["multistep"]
    milestones: tuple[int, ...] = Field(description="Epochs (or updates) of the decays, rising.")
    gamma: float = Field(0.1, gt=0, description="Factor of each decay.")

    @model_validator(mode="after")
    def _rising(self) -> MultistepConfig:
        if (
            list(self.milestones) != sorted(set(self.milestones))
            or min(self.milestones, default=1) < 1
        ):
            raise ValueError("milestones must be rising whole numbers of 1 or more")
        return self


class CosineConfig(_ScheduleBase):
    """Half a cosine from 1 to `final_factor`, after `hold` of the training at 1."""

    name: Literal["cosine"]
    final_factor: float = Field(0.0, ge=0, le=1, description="Factor that the curve ends at.")
    hold: float = Field(0.0, ge=0, lt=1, description="Share of the training at factor 1 first.")


class LinearConfig(_ScheduleBase):
    """A straight line from 1 to `final_factor`."""

    name: Literal["linear"]
    final_factor: float = Field(
        0.0, ge=0, le=1, description="Factor of the last epoch (or update)."
    )


class LogConfig(_ScheduleBase):
    """Evenly spaced on a logarithmic scale from 1 to `final_factor`."""

    name: Literal["log"]
    final_factor: float = Field(gt=0, le=1, description="Factor of the last epoch (or update).")


class PolynomialConfig(_ScheduleBase):
    """(1 - t/T) ** power, scaled to end at `final_factor`."""

    name: Literal["polynomial"]
    power: float = Field(0.9, gt=0, description="Exponent.")
    final_factor: float = Field(0.0, ge=0, le=1, description="Factor that the curve ends at.")


ScheduleConfig = Annotated[
    ConstantConfig
    | StepConfig
    | MultistepConfig
    | CosineConfig
    | LinearConfig
    | LogConfig
    | PolynomialConfig,
    Field(discriminator="name"),
]


class LinearWarmupConfig(Schema):
    """The factor rises in a straight line, update by update, from `start_factor` to 1."""

    name: Literal["linear"]
    updates: int = Field(gt=0, description="Length; update number `updates` is the first at 1.")
    start_factor: float = Field(0.001, ge=0, le=1, description="Factor of the first update.")


class SteppedWarmupConfig(Schema):
    """The factor rises epoch by epoch, by a constant ratio; the main schedule begins afterwards."""

    name: Literal["stepped"]
    epochs: int = Field(gt=0, description="Length in epochs.")
    start_factor: float = Field(gt=0, le=1, description="Factor of the first epoch.")
    spacing: Literal["log", "linear"] = Field("log", description="How the steps are spaced.")


WarmupConfig = Annotated[LinearWarmupConfig | SteppedWarmupConfig, Field(discriminator="name")]


class EmaConfig(Schema):
    """Exponential moving average of the weights; it is what is evaluated and deployed."""

    decay: float = Field(0.9999, gt=0, lt=1, description="Decay at the end of the ramp.")
    ramp: float = Field(
        0.0, ge=0, description="Updates scale of decay * (1 - exp(-updates / ramp)); 0: no ramp."
    )


class FreezeConfig(Schema):
    """A named part that does not train, its batch norm in eval mode meanwhile."""

    prefix: str = Field(
        min_length=1, description="Start of the module's name, e.g. `backbone.body`."
    )
    from_epoch: int = Field(
        0, ge=0, description="First epoch, counted from 0, in which the part is frozen."
    )
    until_epoch: int | None = Field(
        None, gt=0, description="First epoch in which the part trains again; null: never."
    )
    norm_only: bool = Field(
        False, description="Keep only the batch norm in eval mode; the weights train."
    )

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> FreezeConfig:
        if self.until_epoch is not None and self.until_epoch <= self.from_epoch:
            raise ValueError("until_epoch must be greater than from_epoch")
        return self


_POLICY = "What an update whose loss or gradient is not finite leads to."


class _GuardBase(Schema):
    largest_loss: float | None = Field(
        None, gt=0, description="A loss above this counts as not finite; null: no limit."
    )


class StopGuardConfig(_GuardBase):
    """The first such update ends the run with exit code 4."""

    policy: Literal["stop"] = Field("stop", description=_POLICY)


class BudgetGuardConfig(_GuardBase):
    """Such updates are left out as long as the budget lasts."""

    window: int = Field(20, gt=0, description="Updates of a window.")
    skips: int = Field(6, ge=0, description="More updates left out within a window are a failure.")
    failures: int = Field(0, ge=0, description="More failures than this exhaust the budget.")


class SkipGuardConfig(BudgetGuardConfig):
    """They are left out; an exhausted budget ends the run with exit code 4."""

    policy: Literal["skip"] = Field(description=_POLICY)


class ZeroFewGuardConfig(BudgetGuardConfig):
    """Bad entries of few gradient tensors become 0; an update with more of them is left out."""

    policy: Literal["zero_few"] = Field(description=_POLICY)
    tensors: int = Field(1, gt=0, description="At most so many gradient tensors are mended.")


class RollbackGuardConfig(BudgetGuardConfig):
    """They are left out; an exhausted budget leads back to the newest checkpoint."""

    policy: Literal["rollback"] = Field(description=_POLICY)
    rollbacks: int = Field(3, gt=0, description="Ends the run when one more would be needed.")
    lr_factor: float = Field(
        0.5, gt=0, le=1, description="All learning rates times this, after each step back."
    )


class RestartGuardConfig(BudgetGuardConfig):
    """As rollback, with other random draws in place of a lower learning rate."""

    policy: Literal["restart_new_seed"] = Field(description=_POLICY)
    restarts: int = Field(3, gt=0, description="Ends the run when one more would be needed.")


GuardConfig = Annotated[
    StopGuardConfig
    | SkipGuardConfig
    | ZeroFewGuardConfig
    | RollbackGuardConfig
    | RestartGuardConfig,
    Field(discriminator="policy"),
]


class CheckpointConfig(Schema):
    """When the training state is written, and how many files stay."""

    every_updates: int | None = Field(
        None, gt=0, description="Also write after this many updates; null: after epochs only."
    )
    every_epochs: int = Field(1, gt=0, description="Write after this many epochs.")
    keep: int = Field(2, gt=0, description="How many of the newest files stay.")
    keep_every_epochs: int | None = Field(
        None, gt=0, description="Keep each n-th epoch's file for good; null: none."
    )


class EarlyStoppingConfig(Schema):
    """End the training when the headline score stands still."""

    patience: int = Field(gt=0, description="Evaluations without a better score before the end.")
    min_change: float = Field(0.0, ge=0, description="What counts as better: more than this.")


class InitialWeightsConfig(Schema):
    """Weights to start from (fine-tuning), loaded as far as names and shapes fit."""

    path: str = Field(
        min_length=1,
        json_schema_extra={"format": "path"},
        description="A checkpoint or state dict; relative to the YAML.",
    )
    exclude: tuple[str, ...] = Field((), description="Name prefixes that are not taken over.")


class TrainConfig(Schema):
    """The training loop."""

    epochs: int = Field(gt=0, description="Passes over the training split.")
    batch_size: int = Field(gt=0, description="Samples per batch over all ranks together.")
    workers: int = Field(0, ge=0, description="Loader processes per rank; 0: in the main process.")
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = Field(default_factory=lambda: ConstantConfig(name="constant"))
    warmup: WarmupConfig | None = Field(
        None, description="Warm-up of the learning rate; null: none."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="Autocast precision.")
    accumulate: int = Field(1, gt=0, description="Batches whose gradients make one update.")
    clip_norm: float | None = Field(
        None, gt=0, description="Largest gradient norm; null: no limit."
    )
    clip_value: float | None = Field(
        None, gt=0, description="Largest absolute gradient entry; null: no limit."
    )
    ema: EmaConfig | None = Field(None, description="Moving average of the weights; null: none.")
    freeze: tuple[FreezeConfig, ...] = Field((), description="Parts that do not train at first.")
    guard: GuardConfig = Field(
        default_factory=lambda: StopGuardConfig(),
        description="What happens at a non-finite loss or gradient.",
    )
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    early_stopping: EarlyStoppingConfig | None = Field(None, description="null: train to the end.")
    initial_weights: InitialWeightsConfig | None = Field(
        None, description="Fine-tune from these weights; null: from the model's own start."
    )
    evaluate_every: int = Field(1, gt=0, description="Epochs between two evaluations on `val`.")
    evaluate_first: bool = Field(
        True, description="Score the untrained network too, so that curves and pictures begin at 0."
    )
    log_every: int = Field(20, gt=0, description="Updates between two points of each curve.")
    determinism: Literal["off", "seeded", "strict"] = Field(
        "seeded",
        description="off: fastest kernels; seeded: same draws; strict: deterministic kernels only.",
    )
    channels_last: bool = Field(False, description="Memory format of 4-d weights and pictures.")
    compile: bool = Field(False, description="Compile the network with torch.compile.")
