"""What every task's experiment has beside `train`: registration with its gate, and `compat`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field


class ChampionGateConfig(BaseModel):
    """A comparison with the model that holds the alias `champion`, on the same data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str = Field(min_length=1, description="Score that is compared, without split prefix.")
    min_change: float = Field(
        0.0, description="Least difference to the champion's score; negative allows a small loss."
    )


class GateConfig(BaseModel):
    """What a model must show before it gets a version."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    thresholds: dict[str, float] = Field(
        default_factory=dict, description="Score -> least value, e.g. `mAP_50: 0.5`."
    )
    champion: ChampionGateConfig | None = Field(
        None, description="Comparison with the champion; null: none."
    )


class RegisterConfig(BaseModel):
    """The registered model, and the gate before it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(
        min_length=1, pattern=r"^[A-Za-z0-9_\-. ]+$", description="Registered model's name."
    )
    gate: GateConfig = Field(default_factory=GateConfig)
    allow_failed: bool = Field(
        False, description="Register also when the gate failed (tag gate=failed, no alias)."
    )
    promote: bool = Field(False, description="Let the main job promote a version that passed.")
    description: str = Field("", description="Markdown put after the headline of each version.")


def kept_defects(compat: Sequence[str], known: Iterable[str]) -> frozenset[str]:
    """Return the names of an experiment's `compat`; `all` stands for all that are known."""
    return frozenset(known if "all" in compat else compat) - {"all"}
