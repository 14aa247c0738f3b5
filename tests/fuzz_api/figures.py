"""Prints what came of one way, from the generator's report (tests/fuzz_api.sh)."""

import json
import sys

way, path = sys.argv[1:]
try:
    with open(path) as file:
        report = json.load(file)
    cases, operations = report["test_cases"], report["operations"]
    failures = cases["unique_failures"] + cases["errored"]
    print(
        f"fuzz-api: {way}: {cases['generated']} requests to {operations['tested']} operations, "
        f"{failures} failures, {report['running_time']:.0f} s"
    )
except (OSError, ValueError, KeyError, TypeError) as error:
    sys.exit(f"fuzz-api: {way}: the generator left no report: {error!r}")
is_whole = report["complete"] and operations["tested"] == operations["total"] > 0
sys.exit(0 if is_whole and not failures else 1)
