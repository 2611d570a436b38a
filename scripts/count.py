"""Adds up pytest's JUnit files into one closing line; fails where anything failed, was skipped, or nothing ran."""

import sys
import xml.etree.ElementTree as ET


def main(files: list[str]) -> int:
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for file in files:
        for suite in ET.parse(file).getroot().iter("testsuite"):  # noqa: S314 (written by our own pytest run)
            for name in totals:
                totals[name] += int(suite.get(name, "0"))
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    print(f"{passed} passed, {failed} failed, {totals['skipped']} skipped")  # noqa: T201 (the count is the output)
    return 0 if passed and not failed and not totals["skipped"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
