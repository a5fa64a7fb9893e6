"""The sources of the functions that run SQL text on PostgreSQL: one runs a job's statements, one only reads.

`roles` creates each once per role that owns it, and `sql_text` compares it with this source before every call. A text
gains nothing by taking a function over: the function runs as its owner, like the text itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function's source. `path` is its search_path, which names pg_temp last; unnamed, it would come first."""

    arguments: str
    path: tuple[str, ...]
    body: str

    @property
    def digest(self) -> str:
        return sha256(f"{self.arguments}\0{self.path}\0{self.body}".encode()).hexdigest()[:8]

    @property
    def settings(self) -> list[str]:
        """The function's settings, in the form of `pg_proc.proconfig`."""
        return [f"search_path={', '.join(self.path)}"]


_SAID = """
    said text;
    told_more text;
    hinted text;
    state text;"""
_TOO_LONG = """
EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, told_more = PG_EXCEPTION_DETAIL, hinted = PG_EXCEPTION_HINT,
        state = RETURNED_SQLSTATE;
    IF pg_catalog.length(said) + pg_catalog.length(told_more) + pg_catalog.length(hinted) <= 30000 THEN
        RAISE;
    END IF;
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = pg_catalog.left(said, 10000) || ' …',
        DETAIL = pg_catalog.left(told_more, 10000), HINT = pg_catalog.left(hinted, 10000);"""
"""Cuts long errors. An error that a text raises may have any length, and the server sends it whole."""

RUN_FUNCTION = FunctionSource(
    "statements text[], most bigint,"
    " OUT kept text[], OUT shape text[], OUT counts bigint[], OUT reads boolean[], OUT cut boolean",
    ("public", "pg_temp"),
    f"""
DECLARE{_SAID}
    answer refcursor;
    statement text;
    line record;
    told text;
    is_read boolean;
    size bigint;
    touched bigint;
BEGIN
    kept := '{{}}'; counts := '{{}}'; reads := '{{}}'; cut := false;
    FOREACH statement IN ARRAY statements LOOP
        -- What returns no rows cannot be opened, which is found before anything of it has run.
        BEGIN
            OPEN answer NO SCROLL FOR EXECUTE statement;
            is_read := true;
        EXCEPTION WHEN invalid_cursor_definition THEN
            is_read := false;
        END;
        IF is_read THEN
            kept := '{{}}'; cut := false; size := 0; touched := 0;
            LOOP
                FETCH answer INTO line;
                told := pg_catalog.row_to_json(line)::text;
                -- After the last row all columns are there, without values: so they are known where there are no rows.
                -- Their names alone: a value of the first row may be larger than all that is to be sent.
                IF touched = 0 THEN
                    shape := ARRAY(SELECT pg_catalog.json_object_keys(told::pg_catalog.json));
                END IF;
                EXIT WHEN NOT FOUND;
                touched := touched + 1;
                size := size + pg_catalog.length(told);
                IF size > most THEN cut := true; END IF;
                IF NOT cut THEN kept := kept || told; END IF;
            END LOOP;
            CLOSE answer;
        ELSE
            EXECUTE statement;
            GET DIAGNOSTICS touched = ROW_COUNT;
        END IF;
        counts := counts || touched;
        reads := reads || is_read;
    END LOOP;
    -- What is deferred must run here, as the owner; and nothing that was set may be in force for whoever comes next.
    SET CONSTRAINTS ALL IMMEDIATE;
    EXECUTE 'CLOSE ALL';
    RESET ALL;
    -- Outside this block it would not hold any more: said here, for a text that may well have meant what it said.
    IF pg_catalog.current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION 'The text made its transaction read-only, so that its end cannot be written'
            USING ERRCODE = 'read_only_sql_transaction', HINT = 'Leave SET TRANSACTION READ ONLY out.';
    END IF;{_TOO_LONG}
END
""",
)

READ_FUNCTION = FunctionSource(
    "statement text, most_rows bigint, most bigint, OUT kept text[], OUT shape text[], OUT cut boolean",
    ("sys", "pg_temp"),
    f"""
DECLARE{_SAID}
    answer refcursor;
    line record;
    told text;
    size bigint := 0;
    touched bigint := 0;
BEGIN
    kept := '{{}}'; cut := false;
    OPEN answer NO SCROLL FOR EXECUTE statement;
    LOOP
        FETCH answer INTO line;
        told := pg_catalog.row_to_json(line)::text;
        IF touched = 0 THEN
            shape := ARRAY(SELECT pg_catalog.json_object_keys(told::pg_catalog.json));
        END IF;
        EXIT WHEN NOT FOUND;
        touched := touched + 1;
        size := size + pg_catalog.length(told);
        cut := size > most OR touched > most_rows;
        EXIT WHEN cut;
        kept := kept || told;
    END LOOP;
    CLOSE answer;{_TOO_LONG}
END
""",
)
