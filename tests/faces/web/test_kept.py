from __future__ import annotations

from backstory.faces.web.site import Kept


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class TestKept:
    """An answer is made once and given again until it is too old."""

    def test_gives_the_same_answer_until_it_is_too_old(self) -> None:
        clock, made = Clock(), list[int]()
        kept = Kept[int](60, clock)

        def make() -> int:
            made.append(len(made))
            return made[-1]

        assert kept.find("a") is None
        assert kept.get("a", make).value == 0
        clock.now += 59
        assert kept.get("a", make).value == 0
        assert kept.get("b", make).value == 1
        clock.now += 1
        assert kept.find("a") is None
        answer = kept.get("a", make)
        assert (answer.value, answer.made_at) == (2, 1_060_000)

    def test_makes_a_new_one_on_request(self) -> None:
        clock = Clock()
        kept = Kept[float](60, clock)
        kept.get("a", clock)
        clock.now += 1
        assert kept.get("a", clock, anew=True).value == 1_001
        assert kept.get("a", clock).value == 1_001

    def test_forgets_the_oldest_of_many(self) -> None:
        kept = Kept[int](60)
        for number in range(40):
            kept.get(number, lambda: 0)
        assert kept.find(39) is not None
        assert kept.find(0) is None
