"""`python -m syncline.sweeps PLAN.toml`: what `syncline-lab sweep` runs where Python is installed."""

from __future__ import annotations

import argparse
import sys

from . import Plan, SweepError, sweep


def main(arguments=None) -> int:
    """Runs a plan; returns the exit code: 0 done, 1 a task or the sweep failed, 2 usage, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="syncline-lab sweep", description="Run every configuration of a plan.")
    parser.add_argument("plan", metavar="PLAN", help="a plan: TOML")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="directory of the results")
    parser.add_argument("--resume", action="store_true", help="run only what the directory lacks")
    parser.add_argument("--executor", metavar="WHERE", help="local, ray, ray://HOST or tcp://HOST:PORT of Dask")
    parser.add_argument("--workers", type=int, metavar="N", help="local processes [default: one a processor]")
    given = parser.parse_args(arguments)
    try:
        table = sweep(
            Plan.load(given.plan),
            executor=given.executor,
            workers=given.workers,
            output=given.output,
            resume=given.resume,
        )
    except SweepError as error:
        print(f"syncline: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"syncline: interrupted; {given.output} holds what was done, go on with --resume", file=sys.stderr)
        return 130
    errors = [text for text in table.column("error").to_pylist() if text is not None]
    print(f"{table.num_rows} rows in {given.output}")
    if errors:
        print(f"syncline: {len(errors)} tasks failed, the first: {errors[0]}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
