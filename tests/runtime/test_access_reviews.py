"""Access reviews: verdicts by token and namespace, their cache, the limits of reviews, and the refusals."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from typing import Any

import pytest
from support.reviewing import ReviewingApi
from support.waiting import LIMIT_SECONDS

from runtime.kubernetes import access_reviews
from runtime.kubernetes.access_reviews import ALL_NAMESPACES, AccessReviews, AccessVerdict


def reviewer(api: ReviewingApi, monotonic: Callable[[], float] = lambda: 0.0) -> AccessReviews:
    """Return an authorizer by the verb list on pods."""
    return AccessReviews(api, "list", "the watcher", monotonic)


def test_a_review_names_user_verb_and_namespace() -> None:
    """The right that is reviewed is the verb on pods of the namespace, for the user of the token."""
    api = ReviewingApi()
    assert reviewer(api).judge("Bearer reader-token", "default") is AccessVerdict.ALLOWED
    (_, token), (_, access) = api.reviews
    assert token["spec"] == {"token": "reader-token"}
    assert access["spec"]["user"] == "reader"
    assert access["spec"]["resourceAttributes"] == {"namespace": "default", "verb": "list", "resource": "pods"}


def test_a_token_is_reviewed_once_for_many_namespaces() -> None:
    """Each namespace costs one SubjectAccessReview, the token one TokenReview, until the cache expires."""
    api, now = ReviewingApi(), [0.0]
    reviews = reviewer(api, lambda: now[0])
    for _ in range(3):
        for number in range(200):
            assert reviews.judge("Bearer reader-token", f"ns-{number}") is AccessVerdict.FORBIDDEN
    assert Counter(path.rpartition("/")[2] for path, _ in api.reviews) == {
        "tokenreviews": 1, "subjectaccessreviews": 200,
    }  # fmt: skip
    now[0] = access_reviews.CACHE_SECONDS + 1
    reviews.judge("Bearer reader-token", "ns-0")
    assert len(api.reviews) == 203


def test_a_verdict_is_cached_for_seconds_only() -> None:
    """A revoked token is refused once the cached review has expired."""
    api, now = ReviewingApi(), [0.0]
    reviews = reviewer(api, lambda: now[0])
    assert reviews.judge("Bearer reader-token", "default") is AccessVerdict.ALLOWED
    now[0] = access_reviews.CACHE_SECONDS + 1
    api.send = lambda *_: {"status": {}}  # type: ignore[method-assign]
    assert reviews.judge("Bearer reader-token", "default") is AccessVerdict.UNKNOWN


def test_made_up_tokens_cost_few_reviews() -> None:
    """A flood of made-up tokens costs ten reviews a second at most, and a known token stays cached meanwhile."""
    api, now = ReviewingApi(), [0.0]
    reviews = reviewer(api, lambda: now[0])
    verdicts: Counter[AccessVerdict] = Counter()
    for second in range(60):
        now[0] = float(second)
        if second % 9 == 0:
            assert reviews.judge("Bearer reader-token", "default") is AccessVerdict.ALLOWED
        reviews_before = len(api.reviews)
        verdicts.update(reviews.judge(f"Bearer {second}-{number}", "default") for number in range(100))
        assert len(api.reviews) - reviews_before <= (20 if second == 0 else 10)
        now[0] += 0.3
    assert verdicts.keys() == {AccessVerdict.UNKNOWN, AccessVerdict.BUSY}


def test_a_known_user_causes_a_limited_number_of_reviews() -> None:
    """Made-up namespaces are refused as busy above the limit, and the cache stays bounded."""
    api = ReviewingApi()
    reviews = reviewer(api)
    verdicts = Counter(reviews.judge("Bearer reader-token", f"made-up-{number}") for number in range(1500))
    assert verdicts == {AccessVerdict.FORBIDDEN: 1000, AccessVerdict.BUSY: 500}


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the oldest verdicts go, expired or not."""
    monkeypatch.setattr(access_reviews, "_MAX_CACHED", 50)
    reviews = reviewer(ReviewingApi())
    for number in range(400):
        reviews.judge("Bearer reader-token", f"ns-{number}")
    assert len(reviews._verdicts) == 50


def test_refusals_are_cached() -> None:
    """A token that the API server does not know, or has no right, or could not review is not reviewed again at once."""
    api, now = ReviewingApi(), [0.0]
    reviews = reviewer(api, lambda: now[0])
    for token, verdict in (("none", AccessVerdict.UNKNOWN), ("other-token", AccessVerdict.FORBIDDEN)):
        assert reviews.judge(f"Bearer {token}", "default") is verdict
        reviews_before = len(api.reviews)
        assert reviews.judge(f"Bearer {token}", "default") is verdict
        assert len(api.reviews) == reviews_before
    api.down = True
    assert reviews.judge("Bearer reader-token", "default") is AccessVerdict.UNDECIDED
    api.down = False
    assert reviews.judge("Bearer reader-token", "default") is AccessVerdict.UNDECIDED
    now[0] = 1.1
    assert reviews.judge("Bearer reader-token", "default") is AccessVerdict.ALLOWED


def test_few_reviews_run_at_a_time() -> None:
    """While the API server hangs, three threads wait for it; the others are refused at once, and hold none."""
    api = ReviewingApi()
    reviews = AccessReviews(api, "list", "the watcher")
    reviews.judge("Bearer reader-token", "default")
    send, answer, hanging = api.send, threading.Event(), []

    def hang(*arguments: Any) -> Any:
        hanging.append(arguments)
        answer.wait(20)
        return send(*arguments)

    api.send = hang  # type: ignore[method-assign]
    with ThreadPoolExecutor(8) as pool:
        judging = [pool.submit(reviews.judge, f"Bearer {number}", "default") for number in range(8)]
        refused = [each.result() for each in islice(as_completed(judging, 20), 5)]
        assert reviews.judge("Bearer reader-token", "default") is AccessVerdict.ALLOWED
        assert len(hanging) == 3
        began = time.monotonic()
        assert {reviews.judge(f"Bearer later-{number}", "default") for number in range(100)} == {AccessVerdict.BUSY}
        assert time.monotonic() - began < LIMIT_SECONDS  # each waited a second
        answer.set()
    assert refused == [AccessVerdict.BUSY] * 5
    assert [each.result() for each in judging].count(AccessVerdict.UNKNOWN) == 3


@pytest.mark.parametrize(
    ("verdict", "namespace", "status", "words"),
    [
        (AccessVerdict.UNKNOWN, "shop", 401, ("kubectl create token",)),
        (AccessVerdict.FORBIDDEN, "shop", 403, ("not list pods in the namespace shop", "a Role in the namespace shop")),
        (AccessVerdict.FORBIDDEN, ALL_NAMESPACES, 403, ("may not list pods in all namespaces", "a ClusterRole")),
        (AccessVerdict.UNDECIDED, "shop", 503, ("may the watcher create tokenreviews and subjectaccessreviews?",)),
        (AccessVerdict.BUSY, "shop", 503, ("retry in a few seconds",)),
    ],
)  # fmt: skip
def test_a_refusal_names_the_right_and_the_remedy(
    verdict: AccessVerdict, namespace: str, status: int, words: tuple[str, ...]
) -> None:
    """A refusal has the status, verb, resource and namespace, and the rule that helps."""
    refusal = reviewer(ReviewingApi()).refusal(verdict, namespace)
    assert refusal is not None
    assert refusal.status == status
    for word in words:
        assert word in refusal.message
    assert reviewer(ReviewingApi()).refusal(AccessVerdict.ALLOWED, namespace) is None
