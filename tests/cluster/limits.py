"""A time limit for tests that wait for processes."""

import functools
import signal


def within(seconds):
    """Fail a test that hangs, instead of blocking the run."""

    def decorate(test):
        @functools.wraps(test)
        def limited(*args, **kwargs):
            def stop(*_):
                raise TimeoutError(f"{test.__name__} took longer than {seconds} s")

            before = signal.signal(signal.SIGALRM, stop)
            signal.alarm(seconds)
            try:
                return test(*args, **kwargs)
            finally:
                signal.alarm(0)
                signal.signal(signal.SIGALRM, before)

        return limited

    return decorate
