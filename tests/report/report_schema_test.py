"""Holds reports to report/report.schema.json: the golden one, an export, and broken ones.

Usage: report_schema_test.py SCHEMA REPORT EXPORT
"""

import copy
import json
import sys

import jsonschema


def no_constant(name):
    raise ValueError(f"{name} is no JSON")


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file, parse_constant=no_constant)


def main():
    schema, report, export = (load(path) for path in sys.argv[1:4])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name, document in (("report", report), ("export", export)):
        for error in validator.iter_errors(document):
            sys.exit(f"{name}: {error.json_path}: {error.message}")
    if "trials" in report or "trials" not in export:
        sys.exit("trials[] belongs to an export, and to nothing else")
    for path, value in (
        (("ranking", 0, "standing"), "fine"),
        (("ranking", 0, "place"), 0),
        (("ranking", 0, "speedup", "estimate"), 0),
        (("breakdown", 0, "share"), 1.5),
        (("answer",), None),
    ):
        broken = copy.deepcopy(report)
        at = broken
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        if validator.is_valid(broken):
            sys.exit(f"the schema accepts {value!r} at {path}")


if __name__ == "__main__":
    main()
