from dray.elastic.silence import AwakeClock, Silence


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def listening(time: Time, clock: AwakeClock, seconds: float, turn_s: float = 0.5) -> None:
    """Let a loop listen for so long."""
    for _ in range(round(seconds / turn_s)):
        time.now += turn_s
        clock.tick()


def test_a_question_without_an_answer_counts_from_when_it_was_asked() -> None:
    time = Time()
    clock = AwakeClock(1.0, time)
    silence = Silence(clock)
    listening(time, clock, 30)
    assert silence.seconds == 0
    silence.ask()
    listening(time, clock, 8)
    assert silence.seconds == 8


def test_time_in_which_this_process_was_stopped_does_not_count() -> None:
    time = Time()
    clock = AwakeClock(1.0, time)
    silence = Silence(clock)
    silence.ask()
    listening(time, clock, 2)
    time.now += 3600
    clock.tick()
    assert silence.seconds == 3
    listening(time, clock, 6)
    assert silence.seconds == 9


def test_a_loop_that_is_always_slow_still_notices() -> None:
    time = Time()
    clock = AwakeClock(1.0, time)
    silence = Silence(clock)
    silence.ask()
    listening(time, clock, 30, turn_s=3.0)
    assert silence.seconds == 10


def test_an_answer_ends_the_silence_until_the_next_question() -> None:
    time = Time()
    clock = AwakeClock(1.0, time)
    silence = Silence(clock)
    silence.ask()
    listening(time, clock, 5)
    silence.hear(still_asked=False)
    listening(time, clock, 5)
    assert silence.seconds == 0


def test_another_sign_of_life_starts_the_count_of_an_open_question_again() -> None:
    time = Time()
    clock = AwakeClock(1.0, time)
    silence = Silence(clock)
    silence.ask()
    listening(time, clock, 5)
    silence.hear(still_asked=True)
    listening(time, clock, 3)
    assert silence.seconds == 3


def test_asking_again_after_a_question_that_failed_is_not_a_sign_of_life() -> None:
    time = Time()
    clock = AwakeClock(1.0, time)
    silence = Silence(clock)
    silence.ask()
    listening(time, clock, 5)
    silence.ask()
    listening(time, clock, 3)
    assert silence.seconds == 8
