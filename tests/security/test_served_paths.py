"""A served model takes no text for a path: nobody reads the server's files through it."""

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*type hint is inferred as AnyType:UserWarning")

SECRET = "the-server-s-own-picture"


@pytest.fixture
def picture(tmp_path):
    from tests.builders import write_picture

    return write_picture(tmp_path / f"{SECRET}.png")


FORMS = {
    "path": str,
    "address": lambda path: path.as_uri(),
    "bytes of a path": lambda path: str(path).encode(),
    "object": lambda path: {"path": str(path)},
    "list": lambda path: [str(path)],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_path_in_a_request_is_not_opened(picture, form):
    from mlflow.exceptions import MlflowException

    from steps.serving import open_picture

    with pytest.raises(MlflowException, match="row 0") as caught:
        open_picture(form(picture), where="row 0")
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_pictures_of_a_request_are_decoded_one_by_one(monkeypatch):
    """A small request may hold pictures that fill the memory together."""
    import pandas as pd

    from steps import serving

    events = []

    class Predictor:
        def predict(self, pictures, *, score_threshold):
            events.append("answered")
            return [{} for _ in pictures]

    monkeypatch.setattr(serving, "open_picture", lambda value, where: events.append("decoded"))
    model = serving.ServedModel()
    model.predictor = Predictor()
    model.predict(None, pd.DataFrame({"image": [b"a", b"b"]}))
    assert events == ["decoded", "answered"] * 2
