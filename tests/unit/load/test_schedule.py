"""Conversations onto lanes, by hand."""

from draftbench.load.schedule import Dispatch, Schedule
from tests.unit.load.builders import MS, dialogue

THREE = [dialogue("a", [1], [1, 2]), dialogue("b", [3]), dialogue("c", [4], [4, 5], delays=[5, 20])]


def told(dispatch: Dispatch | None) -> tuple[str, int, int, int, int]:
    """(conversation, turn, request number, lane, due in ms)."""
    assert dispatch is not None
    return (
        dispatch.conversation.session_id,
        dispatch.turn.turn,
        dispatch.request,
        dispatch.lane,
        dispatch.due_ns // MS,
    )


def test_two_lanes_take_turns_in_order_and_are_refilled() -> None:
    """a and b start; b ends first, so lane 1 takes c; a's second turn stays on lane 0."""
    schedule = Schedule(THREE, 2)

    assert told(schedule.next(0, 0)) == ("a", 0, 0, 0, 0)
    assert told(schedule.next(1, 0)) == ("b", 0, 2, 1, 0)
    assert told(schedule.next(1, 30 * MS)) == ("c", 0, 3, 1, 35)
    assert told(schedule.next(0, 40 * MS)) == ("a", 1, 1, 0, 40)
    assert schedule.next(0, 60 * MS) is None
    assert told(schedule.next(1, 70 * MS)) == ("c", 1, 4, 1, 90)
    assert schedule.next(1, 99 * MS) is None


def test_request_numbers_are_the_planned_order_whatever_the_lanes_do() -> None:
    """Numbers pair the arms: the same request has the same number at every concurrency."""
    schedule = Schedule(THREE, 1)
    numbers = []
    while (dispatch := schedule.next(0, 0)) is not None:
        numbers.append(dispatch.request)

    assert numbers == [0, 1, 2, 3, 4]
    assert schedule.planned_requests == 5


def test_there_are_no_more_lanes_than_conversations() -> None:
    """Concurrency 8 over three conversations is three lanes."""
    assert Schedule(THREE, 8).lanes == 3
