import contextlib
import os
import signal
import time

import pytest

from engine.interrupt import Interrupted, Interruption


@pytest.fixture
def interruption():
    interruption = Interruption()
    interruption.install()
    yield interruption
    interruption.uninstall()


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_waiting_at_once(interruption, number):
    with pytest.raises(Interrupted, match=number.name) as caught:
        send(number)
    assert (caught.value.signal_name, caught.value.exit_code) == (number.name, 1)


def test_deferred_block_is_finished_first(interruption):
    done = []

    def work():
        with interruption.deferred():
            with interruption.deferred():
                send()
            done.append("outer block")

    with pytest.raises(Interrupted):
        work()
    assert done == ["outer block"]


def test_second_signal_changes_nothing(interruption):
    with pytest.raises(Interrupted, match="SIGTERM"):
        send()
    send(signal.SIGINT)
    assert interruption.signal_name == "SIGTERM"


def test_own_error_of_a_deferred_block_comes_first(interruption):
    def work():
        with interruption.deferred():
            send()
            raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        work()


def test_swallowed_signal_comes_again(interruption):
    with contextlib.suppress(Exception):  # as a library might
        send()
    with pytest.raises(Interrupted), interruption.deferred():
        pass


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    interruption = Interruption()
    interruption.install()
    assert signal.getsignal(signal.SIGTERM) != before
    interruption.uninstall()
    assert signal.getsignal(signal.SIGTERM) == before


def test_forked_child_leaves_ctrl_c_to_its_parent_and_ends_by_sigterm(interruption):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert not interruption.is_requested
