import contextlib
import copy
import io
import math
from pathlib import Path

import numpy as np
import pytest

from readers.index import build_index
from readers.records import ImageBoxes, ImageBoxesSet
from tasks.detection.metrics import CocoEvaluator, coco_stats

NAMES = [
    "mAP", "mAP_50", "mAP_75", "mAP_small", "mAP_medium", "mAP_large",
    "AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large",
]  # fmt: skip


def record(image_id, boxes, labels, crowd=None):
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    return ImageBoxes(
        image_id=image_id,
        path=Path(f"/pictures/{image_id}.jpg"),
        width=640,
        height=480,
        turn=1,
        boxes_xyxy=boxes,
        labels=np.array(labels, np.int64),
        is_crowd=np.array(crowd or [False] * len(boxes), np.bool_),
        areas=sides.prod(axis=1),
        annotation_ids=[str(k) for k in range(len(boxes))],
    )


def index_of(*records, classes=("cat", "dog")):
    return build_index(ImageBoxesSet(records, classes, range(len(classes)), [], Path("set")))


def evaluator(*records, detections=(), classes=("cat", "dog")):
    made = CocoEvaluator(index_of(*records, classes=classes))
    for image_id, boxes, scores, labels in detections:
        made.add(image_id, np.array(boxes, np.float32), np.array(scores), np.array(labels))
    return made


LARGE = [100, 100, 300, 300]
SMALL = [10, 10, 30, 30]


def test_perfect_detections_score_one_where_there_are_objects():
    made = evaluator(
        record("a", [LARGE, SMALL], [0, 1]),
        detections=[("a", [LARGE, SMALL], [0.9, 0.8], [0, 1])],
    )

    stats = made.compute().stats

    assert list(stats) == NAMES
    assert math.isnan(stats.pop("mAP_medium"))
    assert math.isnan(stats.pop("AR_medium"))
    assert set(stats.values()) == {1.0}


def test_no_detections_score_zero_and_what_has_no_objects_is_undefined():
    result = evaluator(record("a", [LARGE], [0])).compute()

    assert result.stats["mAP"] == 0
    assert math.isnan(result.stats["mAP_small"])
    assert result.per_class["AP"][0] == 0
    assert math.isnan(result.per_class["AP"][1])
    assert result.score_threshold == 0.5


def test_a_split_without_objects_has_no_scores():
    result = evaluator(record("a", [], []), detections=[("a", [LARGE], [0.9], [0])]).compute(
        slices=("size", "crowding", "aspect")
    )

    assert all(math.isnan(value) for value in result.stats.values())
    assert result.per_image["false_positives"] == [1]
    assert result.per_image["quality"] == [0.0]


def test_an_empty_split_is_legal():
    result = evaluator().compute(slices=("size", "crowding", "aspect"))

    assert math.isnan(result.stats["mAP"])
    assert result.per_image["image_id"] == []


def test_an_iou_of_0_6_counts_for_three_of_ten_thresholds():
    # 60 of 100 columns: IoU 0.6 reaches 0.50, 0.55 and 0.60
    made = evaluator(
        record("a", [[0, 0, 100, 100]], [0]),
        detections=[("a", [[0, 0, 60, 100]], [0.9], [0])],
    )

    stats = made.compute().stats

    assert stats["mAP"] == pytest.approx(0.3)
    assert (stats["mAP_50"], stats["mAP_75"]) == (1.0, 0.0)


def test_a_detection_on_a_crowd_counts_neither_way():
    made = evaluator(
        record("a", [LARGE, [400, 0, 600, 200]], [0, 0], crowd=[False, True]),
        detections=[("a", [LARGE, [420, 20, 460, 60]], [0.5, 0.9], [0, 0])],
    )

    result = made.compute()

    assert result.stats["mAP"] == 1.0
    assert result.per_class["objects"] == [1, 0]
    assert result.per_image["false_positives"] == [0]


def test_a_picture_is_described_from_the_best_threshold_on():
    made = evaluator(
        record("a", [LARGE, SMALL], [0, 1]),
        record("b", [], []),
        detections=[
            ("a", [[100, 100, 300, 280], LARGE, [200, 0, 240, 40]], [0.9, 0.3, 0.8], [0, 0, 1]),
        ],
    )

    result = made.compute()

    # from 0.9 on: one of two objects found, nothing wrong; lower scores add mistakes only
    assert result.score_threshold == 0.9
    row = {name: values[0] for name, values in result.per_image.items()}
    assert row == {
        "image_id": "a",
        "objects": 2,
        "detections": 1,
        "true_positives": 1,
        "false_positives": 0,
        "misses": 1,
        "mean_iou": pytest.approx(0.9),
        "quality": pytest.approx(2 / 3),
    }
    assert result.per_image["quality"][1] == 1.0
    assert result.per_class["precision"][0] == 1.0
    assert result.per_class["recall"] == [1.0, 0.0]


def test_the_curve_falls_with_the_false_positives():
    # ranks: hit, miss, hit: precision 1 up to recall 0.5, then 2/3
    made = evaluator(
        record("a", [LARGE, [400, 100, 600, 300]], [0, 0]),
        detections=[
            (
                "a",
                [LARGE, [0, 400, 50, 450], [400, 100, 600, 300]],
                [0.9, 0.8, 0.7],
                [0, 0, 0],
            )
        ],
    )

    curves = made.compute().curves

    assert curves["precision_50"].shape == (2, 101)
    assert curves["mean_50"][[0, 50, 51, 100]] == pytest.approx([1, 1, 2 / 3, 2 / 3])
    assert np.isnan(curves["precision_50"][1]).all()


def test_slices_tell_kinds_of_objects_apart():
    tall, wide = [0, 0, 40, 200], [100, 0, 400, 50]
    crowded = [[x, y, x + 40, y + 40] for x in (0, 60) for y in (0, 60, 120)]
    made = evaluator(
        record("shapes", [tall, wide], [0, 0]),
        record("many", crowded, [0] * 6),
        detections=[
            ("shapes", [tall], [0.9], [0]),
            ("many", crowded, [0.8] * 6, [0] * 6),
        ],
    )

    slices = made.compute(slices=("size", "crowding", "aspect")).slices

    assert slices["aspect"]["slice"] == ["tall", "square", "wide"]
    assert slices["aspect"]["objects"] == [1, 6, 1]
    assert slices["aspect"]["AP_50"] == pytest.approx([1, 1, 0])
    assert slices["crowding"]["objects"] == [2, 6, 0]
    assert slices["crowding"]["AR_100"][:2] == pytest.approx([0.5, 1])
    assert slices["size"]["objects"] == [0, 7, 1]


def test_what_is_given_is_not_changed():
    gt = {
        "images": [{"id": 3}],
        "annotations": [
            {"id": 1, "image_id": 3, "category_id": 7, "bbox": [1, 2, 30, 40], "area": 1200}
        ],
        "categories": [{"id": 7, "name": "cat"}],
    }
    dt = [{"image_id": 3, "category_id": 7, "bbox": [1, 2, 30, 40], "score": 0.5}]
    before = copy.deepcopy((gt, dt))

    first, second = coco_stats(gt, dt), coco_stats(gt, dt)

    assert (gt, dt) == before
    assert first.stats["mAP"] == second.stats["mAP"] == 1.0


def test_detections_of_a_picture_count_once():
    made = evaluator(record("a", [LARGE], [0]), detections=[("a", [LARGE], [0.9], [0])])

    made.add("a", np.array([SMALL]), np.array([0.99]), np.array([0]))

    assert made.compute().stats["mAP"] == 1.0


@pytest.mark.parametrize(
    ("image_id", "score", "message"),
    [
        ("z", 0.5, "no picture with the id 'z'"),
        ("a", math.nan, "'a' hold a number that is not finite"),
    ],
)
def test_wrong_detections_are_refused(image_id, score, message):
    made = evaluator(record("a", [LARGE], [0]))

    with pytest.raises(ValueError, match=message):
        made.add(image_id, np.array([LARGE]), np.array([score]), np.array([0]))


def test_a_detection_of_a_strange_picture_is_refused():
    gt = {"images": [], "annotations": [], "categories": []}

    with pytest.raises(ValueError, match="image_id 5"):
        coco_stats(gt, [{"image_id": 5, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1.0}])


def random_set(seed):
    """Crowds, tied scores, near misses, empty pictures, over 100 detections and gaps in ids."""
    rng = np.random.RandomState(seed)
    gt = {
        "images": [{"id": int(key), "width": 640, "height": 480} for key in (40, 7, 12, 9, 31)],
        "categories": [{"id": key, "name": f"c{key}"} for key in (9, 2, 5)],
        "annotations": [],
    }
    dt = []
    for image in gt["images"][:-1]:
        for _ in range(rng.randint(0, 9)):
            x, y, width, height = rng.randint(0, 300, 2).tolist() + rng.randint(5, 200, 2).tolist()
            number, category = len(gt["annotations"]) + 1, int(rng.choice((9, 2, 5)))
            annotation = {
                "id": number,
                "image_id": image["id"],
                "category_id": category,
                "bbox": [x, y, width, height],
                "area": width * height * 0.8,
                "iscrowd": int(rng.rand() < 0.2),
            }
            gt["annotations"].append(annotation)
            for _ in range(rng.randint(0, 40)):
                moved = [x, y, width, height] + rng.randn(4) * 0.08 * min(width, height)
                dt.append(
                    {
                        "image_id": image["id"],
                        "category_id": category if rng.rand() < 0.9 else 2,
                        "bbox": moved.tolist(),
                        "score": float(rng.randint(0, 20) / 20),
                    }
                )
    return gt, [dt[k] for k in rng.permutation(len(dt))]


def pycocotools_evaluation(gt, dt):
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = copy.deepcopy(gt)
        truth.createIndex()
        judge = cocoeval.COCOeval(truth, truth.loadRes(copy.deepcopy(dt)), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge


@pytest.mark.parametrize("seed", range(8))
def test_random_sets_score_as_in_pycocotools(seed):
    gt, dt = random_set(seed)

    judge = pycocotools_evaluation(gt, dt)
    result = coco_stats(gt, dt)

    expected = [math.nan if value == -1 else value for value in judge.stats]
    assert list(result.stats.values()) == pytest.approx(expected, abs=1e-9, rel=0, nan_ok=True)


@pytest.mark.parametrize("seed", range(8))
def test_matches_of_each_picture_are_those_of_pycocotools(seed):
    gt, dt = random_set(seed)
    judge = pycocotools_evaluation(gt, dt)
    threshold = coco_stats(gt, dt).score_threshold

    right, wrong = {}, {}
    for found in filter(None, judge.evalImgs):
        if found["aRng"] != judge.params.areaRng[0]:
            continue
        hits = np.array(found["dtMatches"][0]) > 0
        counted = ~np.array(found["dtIgnore"][0], bool) & (np.array(found["dtScores"]) >= threshold)
        key = found["image_id"]
        right[key] = right.get(key, 0) + int((hits & counted).sum())
        wrong[key] = wrong.get(key, 0) + int((~hits & counted).sum())

    rows = coco_stats(gt, dt).per_image
    ids = rows["image_id"]
    assert rows["true_positives"] == [right.get(key, 0) for key in ids]
    assert rows["false_positives"] == [wrong.get(key, 0) for key in ids]
