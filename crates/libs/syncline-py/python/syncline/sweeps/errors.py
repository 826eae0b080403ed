"""The error of a sweep that cannot go on."""


class SweepError(Exception):
    """A sweep cannot start or go on; the message names the cause and the next step.

    Rows that were finished before it stay in the directory of the results.
    """
