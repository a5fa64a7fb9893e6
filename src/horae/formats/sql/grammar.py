"""The grammar of Horae's SQL: the parser reads it, and the published page is generated from it.

CAPITALS are keywords, in any case; adjacent keywords are matched as a group. 'Signs' are in quotes. `[ a ]` is
optional, `{ a }` repeats any number of times, `a | b` is a choice. A word in lower case is another rule or a token of
TOKENS.
"""

from __future__ import annotations

from types import MappingProxyType

from horae.core.access import Privilege

TOKENS = MappingProxyType(
    {
        "identifier": 'a plain name (letters, digits, `_`, and single `-` between them) or one in `"double quotes"`',
        "string": "text in `'single quotes'`, or between `$$` and `$$`",
        "number": "`60`, `1.5`, `1e-3`",
        "compact": "`60s`, `1h30m`: numbers with their units and nothing between",
        "unit": "`s`, `sec`, `second`, `seconds`, `m`, `minute`, `minutes`, `h`, `hour`, `d`, `day`, `week`, …",
        "uuid": "`3f0c9d3e-8a55-4c0e-9b6c-2f7f2c1d4e5a`, without quotes",
        "balanced": "anything in `(` and `)`, with as many opened as closed",
    }
)
"""The lexer's tokens, each with its description for the published page."""

UNITS = (
    *("us", "µs", "\u03bcs", "ms", "s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minute", "minutes"),
    *("h", "hr", "hrs", "hour", "hours", "d", "day", "days", "w", "week", "weeks", "month", "months", "year", "years"),
)
"""Words for units of time. Months and years are included so that `parse_duration` can refuse them with a reason."""

LABELS = MappingProxyType(
    {
        "identifier": "a name",
        "string": "a 'string'",
        "number": "a number",
        "compact": "a duration",
        "unit": "a unit of time",
        "uuid": "a uuid",
        "balanced": "an expression in ( )",
        "duration": "a duration",
        "timestamp": "a 'time'",
        "name": "a name",
        "dotted": "a name",
        "run_id": "the id of a run",
        "shard": "a uuid",
        "literal": "a value",
        "value": "a value",
        "parameter_value": "a value",
        "expression": "an expression",
        "row_table": "sys.cb_schedules",
        "handler_table": "cb_task_handlers",
        "handler_column": "task_name",
        "key_column": "name",
        "new_column": "a column",
        "changed_column": "a column",
        "row_column": "a column",
        "cell": "a value",
    }
)
"""Names of rules and tokens in error messages. Errors name other rules by the words that these begin with."""

GRAMMAR = """\
# Statements

statement = create_job | alter_job | drop_job | execute_job | cancel_run | show | explain_job
          | grant | revoke | create_user | alter_user | drop_user | create_role | drop_role
          | alter_system | create_secret | drop_secret
          | insert_schedules | update_schedules | delete_schedules

# Jobs

create_job = ( CREATE JOB | CREATE OR ALTER JOB | RECREATE JOB ) name { job_clause }
alter_job = ALTER JOB name ( alteration { alteration } | rollback )
alteration = SET ( job_clause | STATE '=' state )
           | ENABLE | DISABLE | RESUME | PAUSE [ UNTIL timestamp ] [ string ]
rollback = ROLLBACK TO VERSION count [ string ]
drop_job = DROP JOB [ IF EXISTS ] name { ',' name } [ KEEP HISTORY ]
execute_job = EXECUTE JOB name [ WITH PAYLOAD '=' string ] [ KEY string ]
cancel_run = CANCEL JOB RUN run_id
run_id = identifier | string | uuid
show = SHOW CREATE JOB name | SHOW JOBS | SHOW JOB RUNS [ FOR name ]
explain_job = EXPLAIN JOB name [ AT timestamp ]

# Clauses of a job: in any order, each at most once

job_clause = SCHEDULE '=' schedule
           | TIMEZONE '=' string
           | GAP '=' gap
           | FOLD '=' fold
           | DST '=' ( gap | fold ) { ',' ( gap | fold ) }
           | DEPENDS ON ( NONE | name { ',' name } )
           | ON COMPLETION ( PRESERVE | DROP | DEFAULT )
           | WINDOW '=' window
           | OVERLAP '=' ( SKIP | ALLOW | QUEUE [ '(' count ')' ] | COALESCE | REPLACE | DEFAULT )
           | RECOVERY '=' ( LAST | ALL | NONE | COMPRESSED | BOUNDED '(' bound { ',' bound } ')' | DEFAULT )
           | UPDATE_POLICY '=' ( IMMEDIATE | GRACEFUL | WINDOWED [ '(' duration ')' ] | DEFAULT )
           | CATCH_UP '=' ( LAST | ALL | NONE )
           | MISFIRE_GRACE '=' ( duration | DEFAULT )
           | DEADLINE '=' ( duration | NONE | DEFAULT )
           | TIMEOUT '=' ( duration | NONE | DEFAULT )
           | CANCEL_GRACE '=' ( duration | DEFAULT )
           | MODE '=' ( SEQUENTIAL | PARALLEL | DEFAULT )
           | DELIVERY '=' ( AT_LEAST_ONCE | AT_MOST_ONCE | DEFAULT )
           | POOL '=' ( name | NONE | DEFAULT )
           | MAX_CONCURRENT '=' ( count | NONE | DEFAULT )
           | MAX_LOST '=' ( count | NONE | DEFAULT )
           | RUN AS ( name | NONE )
           | CLASS '=' ( LOCAL_SAFE | LEADER_ONLY | QUORUM_REQUIRED | NONE )
           | PARTITION BY partition
           | PAYLOAD '=' ( string | NULL )
           | TAGS '=' '(' [ tag { ',' tag } ] ')'
           | NAMESPACE '=' name
           | OWNER '=' name
           | DESCRIPTION '=' string
           | TASKS '(' [ task { ',' task } ] ')'
           | state | setting | body
state = ENABLED | DISABLED | PAUSED
tag = identifier | string
partition = ALL_SHARDS | SINGLE_SHARD shard | SHARD_SET '(' shard { ',' shard } ')' | DYNAMIC expression | NONE
shard = string | uuid | identifier
expression = string | balanced | identifier { '.' identifier } [ balanced ]

# Clauses that a task may have too

setting = FAILURE '=' ( FAIL_FAST | CONTINUE | RETRY_ON_FAILURE | DEFAULT )
        | RETRY '=' ( NONE | DEFAULT )
        | MAX_RETRIES '=' ( count | NONE )
        | RETRY_BACKOFF '=' duration
        | RETRY_FACTOR '=' count
        | MAX_BACKOFF '=' ( duration | NONE )
        | JITTER '=' count
        | TASK_TIMEOUT '=' ( duration | NONE | DEFAULT )
        | ISOLATION '=' ( AUTO | PROCESS | DEFAULT )

# What is done

task = name body { setting }
body = work { option }
work = AS ( string | called ) | called
called = CALL dotted [ arguments ] | EXEC string | PYTHON ( dotted | string )
arguments = '(' [ literal { ',' literal } ] ')'
option = ON CONNECTION name | IN DATABASE | NOT IN DATABASE
       | SHELL | NO SHELL
       | WORKING DIRECTORY string
       | ENVIRONMENT '(' [ variable { ',' variable } ] ')'
       | USER name | GROUP name | UMASK number | STDOUT string | STDERR string
       | SECRETS '(' [ secret { ',' secret } ] ')'
variable = identifier '=' string
secret = name [ AS identifier ] [ IN FILE ]

# Schedules

schedule = NONE | moments { OR moments }
moments = CRON string { cron_option }
        | AT timestamp [ THEN ( DROP | PRESERVE ) ]
        | EVERY duration { STARTS timestamp | ENDS timestamp | ANCHOR timestamp }
        | ISO8601 string { IN string | ANCHOR timestamp }
cron_option = DIALECT ( EXTENDED | POSIX | VIXIE )
            | STARTS timestamp | ENDS timestamp | IN string | ON GAP gap | ON FOLD fold
gap = SKIP | SHIFT
fold = ONCE | BOTH | AUTO

# Windows

window = NONE | DEFAULT | ( AFTER | BEFORE | AROUND | CENTER ) duration { window_option }
window_option = DISTRIBUTION identifier [ '(' [ parameter { ',' parameter } ] ')' ]
              | SEED ( STABLE | DAILY | WEEKLY ) | SALT string | EXACT
              | ONLY '(' limit { ',' limit } ')' | AVOID [ ALL ] '(' limit { ',' limit } ')'
parameter = identifier '=' parameter_value
parameter_value = string | number [ unit ] | compact | identifier
limit = identifier '=' ( string | number )
bound = MAX_OCCURRENCES '=' count | MAX_AGE '=' duration

# People, rights, settings, secrets

grant = GRANT granted { ',' granted } [ ON object ] TO name { ',' name }
revoke = REVOKE granted { ',' granted } [ ON object ] FROM name { ',' name }
granted = privilege | name
privilege = PRIVILEGES
object = [ JOB | SECRET | CONNECTION | TABLE ] dotted
create_user = CREATE USER name { PASSWORD [ '=' ] string | ADMIN }
alter_user = ALTER USER name user_change { user_change }
user_change = [ SET ] ( PASSWORD [ '=' ] string | OLD PASSWORD [ '=' ] string | REVOKE TOKENS
              | ADMIN | NOT ADMIN | ENABLED | DISABLED | user_limit )
user_limit = ( MAX_JOBS | MAX_RUNNING | MAX_STARTS | MAX_STORAGE ) '=' ( NONE | DEFAULT | count | string )
drop_user = DROP USER [ IF EXISTS ] name { ',' name }
create_role = CREATE ROLE name [ DESCRIPTION '=' string ]
drop_role = DROP ROLE [ IF EXISTS ] name { ',' name }
alter_system = ALTER SYSTEM SET SCHEDULER '.' dotted '=' ( DEFAULT | value )
create_secret = ( CREATE SECRET | CREATE OR ALTER SECRET ) name [ FOR JOB name ] ( '=' | AS ) string
drop_secret = DROP SECRET [ IF EXISTS ] name [ FOR JOB name ]

# Jobs as rows of the view cb_schedules

insert_schedules = ( INSERT INTO | INSERT OR IGNORE INTO ) row_table '(' new_column { ',' new_column } ')'
                   ( VALUES row { ',' row } | handler_rows )
                   [ ON CONFLICT [ '(' key_column ')' ] DO NOTHING ]
update_schedules = UPDATE row_table SET change { ',' change } [ WHERE condition { AND condition } ]
delete_schedules = DELETE FROM row_table [ WHERE condition { AND condition } ]
row_table = dotted
row = '(' cell { ',' cell } ')'
cell = literal | NOW '(' ')' | CURRENT_TIMESTAMP | DEFAULT
change = changed_column '=' cell
condition = row_column ( '=' literal | IN '(' literal { ',' literal } ')' )
handler_rows = SELECT handler_cell { ',' handler_cell } FROM handler_table
               [ WHERE handler_column ( '=' string | IN '(' string { ',' string } ')' ) ]
handler_cell = cell | handler_column
handler_table = dotted
handler_column = identifier
new_column = identifier
changed_column = identifier
row_column = identifier
key_column = identifier

# Values

name = identifier
dotted = identifier { '.' identifier }
count = number
timestamp = string
duration = string | INTERVAL string [ unit ] | stretch { stretch }
stretch = number [ unit ] | compact
literal = string | [ '-' ] number | TRUE | FALSE | NULL
value = scalar | '(' [ scalar { ',' scalar } ] ')'
scalar = string | [ '-' ] number [ unit ] | compact | TRUE | FALSE | identifier
""".replace("PRIVILEGES", " | ".join(Privilege))
