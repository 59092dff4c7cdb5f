"""A run books once, a room is sold once, and a booking is never without its event, wherever a process is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from memory.ledger import book, rooms_left
from memory.store import Notebook, NotebookError
from plan.model import Event, Failure, Offer, Receipt, RoomType

ROOT = Path(__file__).parent.parent

SUITE = Offer(
    hotel_id="xian-1",
    hotel_name="钟楼",
    room_type=RoomType.SUITE,
    check_in=date(2026, 9, 15),
    nights=2,
    total_minor=136000,
    currency="CNY",
)


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    with Notebook.open(tmp_path / "trips.db") as opened:
        yield opened


def offer(**changes: object) -> Offer:
    return SUITE.model_copy(update=changes)


def booked(receipt: Receipt) -> Event:
    return Event("call_succeeded", 1, "now", tool="book_hotel", result=receipt.model_dump(mode="json"))


def never(receipt: Receipt) -> Event:
    raise AssertionError(f"an event was made of {receipt}")


def test_a_booking_its_nights_and_its_event_are_on_record_together(notebook: Notebook) -> None:
    receipt = book(notebook, "a", SUITE, 50, booked)
    assert isinstance(receipt, Receipt)
    assert receipt.model_dump(exclude={"reference"}) == {
        **SUITE.model_dump(exclude={"total_minor"}),
        "total": "1360.00",
    }
    assert notebook.receipt("a") == receipt
    assert notebook.events("a") == (booked(receipt),)
    left = rooms_left(notebook, ["xian-1"], [date(2026, 9, d) for d in (15, 16)], 50)
    assert left["xian-1", RoomType.SUITE] == 49


def test_the_same_offer_again_gets_the_same_receipt_and_writes_nothing(notebook: Notebook) -> None:
    first = book(notebook, "a", SUITE, 1, booked)
    assert book(notebook, "a", SUITE, 1, never) == first
    assert len(notebook.events("a")) == 1


@pytest.mark.parametrize("change", [{"check_in": date(2026, 9, 20)}, {"total_minor": 1}, {"hotel_id": "xian-2"}])
def test_another_offer_for_a_run_that_has_booked_is_a_failure_and_no_second_booking(
    notebook: Notebook, change: dict[str, object]
) -> None:
    first = book(notebook, "a", SUITE, 50, booked)
    assert isinstance(first, Receipt)
    second = book(notebook, "a", offer(**change), 50, never)
    assert isinstance(second, Failure)
    assert second.code == "internal_error"
    assert first.reference in second.message
    assert notebook.receipt("a") == first


def test_a_stay_takes_all_its_nights_or_none(notebook: Notebook) -> None:
    assert isinstance(book(notebook, "a", offer(check_in=date(2026, 9, 17), nights=1), 1, booked), Receipt)
    refused = book(notebook, "b", offer(nights=4), 1, never)
    assert isinstance(refused, Failure)
    assert refused.code == "room_unavailable"
    assert refused.details == {"hotel_id": "xian-1", "room_type": "suite", "nights": ["2026-09-17"]}
    assert notebook.receipt("b") is None
    assert rooms_left(notebook, ["xian-1"], [date(2026, 9, 15)], 1)["xian-1", RoomType.SUITE] == 1


def test_the_day_of_departure_another_run_can_move_in(notebook: Notebook) -> None:
    for run_id, day in (("a", 15), ("b", 17), ("c", 13)):
        assert isinstance(book(notebook, run_id, offer(check_in=date(2026, 9, day)), 1, booked), Receipt)


def test_another_hotel_or_room_type_is_another_room(notebook: Notebook) -> None:
    for run_id, change in (("a", {}), ("b", {"hotel_id": "xian-2"}), ("c", {"room_type": RoomType.DELUXE})):
        assert isinstance(book(notebook, run_id, offer(**change), 1, booked), Receipt)


def test_rooms_left_are_the_fewest_of_the_nights_for_every_room_type(notebook: Notebook) -> None:
    for run_id, day in (("a", 15), ("b", 16)):
        book(notebook, run_id, offer(check_in=date(2026, 9, day)), 5, booked)
    nights = [date(2026, 9, day) for day in (14, 15, 16, 17, 18)]
    left = rooms_left(notebook, ("xian-1", "xian-2"), nights, 5)
    assert len(left) == 2 * len(RoomType)
    assert {key: n for key, n in left.items() if n != 5} == {("xian-1", RoomType.SUITE): 3}


def test_fewer_rooms_than_were_sold_are_none_left_and_none_to_book(notebook: Notebook) -> None:
    for run_id in ("a", "b"):
        book(notebook, run_id, SUITE, 2, booked)
    assert rooms_left(notebook, ["xian-1"], [SUITE.check_in], 1)["xian-1", RoomType.SUITE] == 0
    assert isinstance(book(notebook, "c", SUITE, 0, never), Failure)


@pytest.mark.parametrize(("minor", "currency", "total"), [(8400000, "JPY", "8400000"), (5, "EUR", "0.05")])
def test_the_total_has_the_digits_of_its_currency(notebook: Notebook, minor: int, currency: str, total: str) -> None:
    receipt = book(notebook, "a", offer(total_minor=minor, currency=currency), 1, booked)
    assert isinstance(receipt, Receipt)
    assert (receipt.total, receipt.currency) == (total, currency)
    assert notebook.receipt("a") == receipt


def test_references_are_short_readable_and_all_different(notebook: Notebook) -> None:
    references = set()
    for n in range(200):
        receipt = book(notebook, str(n), SUITE, 200, booked)
        assert isinstance(receipt, Receipt)
        references.add(receipt.reference)
    assert len(references) == 200
    assert all(re.fullmatch(r"TR-[2-9A-HJKMNP-TV-Z]{6}", reference) for reference in references)


def test_a_booking_is_synced_to_the_disk_and_other_events_need_not_be(notebook: Notebook) -> None:
    full, normal = 2, 1
    seen = []

    def look(receipt: Receipt) -> Event:
        seen.append(notebook.execute("PRAGMA synchronous")[0][0])
        return booked(receipt)

    book(notebook, "a", SUITE, 1, look)
    assert (*seen, notebook.execute("PRAGMA synchronous")[0][0]) == (full, normal)


def test_without_its_event_nothing_is_booked(notebook: Notebook) -> None:
    notebook.append("a", Event("reminded", 1, "now"))
    with pytest.raises(AssertionError):
        book(notebook, "a", SUITE, 1, never)
    with pytest.raises(NotebookError, match="Nothing was overwritten"):
        book(notebook, "a", SUITE, 1, booked)
    assert notebook.receipt("a") is None
    assert len(notebook.events("a")) == 1
    assert isinstance(book(notebook, "b", SUITE, 1, booked), Receipt)


def test_a_full_disk_books_nothing(notebook: Notebook) -> None:
    notebook.execute("PRAGMA max_page_count = 1")
    with pytest.raises(NotebookError, match="free some space"):
        book(notebook, "a", SUITE, 1, lambda receipt: Event("reminded", 1, "now", text=f"{receipt}" * 99))
    notebook.execute("PRAGMA max_page_count = 1000")
    assert notebook.receipt("a") is None
    assert isinstance(book(notebook, "a", SUITE, 1, booked), Receipt)


def another_process(path: Path, body: str) -> subprocess.Popen[str]:
    """A real second process that is ready to book `SUITE`."""
    code = f"""
import os, signal
from pathlib import Path
from memory.ledger import book
from memory.store import Notebook
from plan.model import Receipt
from tests.test_ledger import SUITE, booked
notebook = Notebook.open(Path({str(path)!r}))
{body}"""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


@pytest.mark.parametrize(
    ("body", "is_booked"),
    [
        ("book(notebook, 'a', SUITE, 1, lambda receipt: os.kill(os.getpid(), signal.SIGKILL))", False),
        ("book(notebook, 'a', SUITE, 1, booked)\nos.kill(os.getpid(), signal.SIGKILL)", True),
    ],
)
def test_a_process_killed_while_booking_leaves_a_booking_with_its_event_or_neither(
    tmp_path: Path, body: str, is_booked: bool
) -> None:
    path = tmp_path / "trips.db"
    with another_process(path, body) as process:
        process.wait()
    assert process.returncode == -signal.SIGKILL
    with Notebook.open(path) as notebook:
        receipt = notebook.receipt("a")
        assert (receipt is not None, len(notebook.events("a"))) == (is_booked, is_booked)
        again = book(notebook, "a", SUITE, 1, never if is_booked else booked)
        assert isinstance(again, Receipt)
        assert receipt in (None, again)


def test_two_processes_never_share_the_last_room(tmp_path: Path) -> None:
    path = tmp_path / "trips.db"
    body = """
print("ready", flush=True)
input()
print(isinstance(book(notebook, str(os.getpid()), SUITE, 1, booked), Receipt))
notebook.close()
"""
    processes = [another_process(path, body) for _ in range(2)]
    assert [process.stdout.readline() for process in processes if process.stdout] == ["ready\n"] * 2
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0] for process in processes) == ["False\n", "True\n"]


def test_sixty_four_runs_at_once_book_exactly_the_five_rooms(tmp_path: Path) -> None:
    path = tmp_path / "trips.db"
    Notebook.open(path).close()

    def run(n: int) -> Receipt | Failure:
        with Notebook.open(path) as own:
            return book(own, str(n), offer(check_in=date(2026, 9, 15 + n % 2)), 5, booked)

    with ThreadPoolExecutor(64) as threads:
        answers = list(threads.map(run, range(64)))
    with Notebook.open(path) as notebook:
        left = rooms_left(notebook, ["xian-1"], [date(2026, 9, 16)], 5)
        assert left["xian-1", RoomType.SUITE] == 0
        assert sum(notebook.receipt(str(n)) is not None for n in range(64)) == 5
        assert notebook.execute("PRAGMA integrity_check")[0][0] == "ok"
    assert sum(isinstance(answer, Receipt) for answer in answers) == 5
    assert {answer.code for answer in answers if isinstance(answer, Failure)} == {"room_unavailable"}
