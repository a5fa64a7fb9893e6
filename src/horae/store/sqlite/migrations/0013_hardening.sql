-- What attacks and fault injection found missing. Earlier releases go on reading and writing: they neither read nor write
-- what is new here, but for what triggers write.
-- min_reader: 1

-- Rights: the key that seals of the audit trail are keyed with, wrapped by the master key, and their codes under it.
CREATE TABLE sys.audit_keys (
    key_no     INTEGER PRIMARY KEY CHECK (key_no = 1),
    wrapped    BLOB NOT NULL,
    key_id     TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
ALTER TABLE sys.audit_seals ADD COLUMN mac TEXT;

-- Shares: what of the catalog each owner of jobs may take, and whose turn it is.
-- The row of the uuid 0 has what nodes are configured with. A limit is NULL where the system's counts, -1 where none does.
CREATE TABLE sys.shares (
    user_uuid     TEXT PRIMARY KEY,
    max_jobs      INTEGER,
    max_running   INTEGER,
    max_starts    INTEGER,
    max_storage   INTEGER,
    is_shared     INTEGER NOT NULL DEFAULT 0, -- runs of this owner are claimed by turns
    is_limited    INTEGER NOT NULL DEFAULT 0, -- and counted when they start
    served_at     INTEGER NOT NULL DEFAULT 0, -- when a run of this owner was claimed last
    window_at     INTEGER NOT NULL DEFAULT 0, -- when the minute began in which starts are counted
    window_starts INTEGER NOT NULL DEFAULT 0,
    stored_bytes  INTEGER,
    measured_at   INTEGER
) WITHOUT ROWID;
CREATE INDEX sys.shares_shared ON shares (user_uuid) WHERE is_shared = 1;

-- The owner whose share a run that waits is claimed from; NULL where runs are claimed by their age alone.
ALTER TABLE sys.job_runs ADD COLUMN share TEXT;
CREATE INDEX sys.job_runs_share ON job_runs (share, not_before) WHERE share IS NOT NULL AND not_before IS NOT NULL;
-- Jobs of `local` are not in it: a catalog that has no others pays nothing for it.
CREATE INDEX sys.jobs_owner ON jobs (created_by_user_uuid)
    WHERE created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6';

-- Answers that are kept for those who ask again: whose they are, so that one user's take only so much room.
ALTER TABLE sys.kept_answers ADD COLUMN user_uuid TEXT;
CREATE INDEX sys.kept_answers_user ON kept_answers (user_uuid, begun_at) WHERE user_uuid IS NOT NULL;

-- A row for each change of rights that the audit trail has no digest of yet, whoever made it.
CREATE TABLE sys.rights_marks (
    mark_no INTEGER PRIMARY KEY
);
INSERT INTO sys.rights_marks DEFAULT VALUES;
CREATE TRIGGER sys.users_mark_insert AFTER INSERT ON users
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.users_mark_update AFTER UPDATE ON users
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.users_mark_delete AFTER DELETE ON users
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.roles_mark_insert AFTER INSERT ON roles
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.roles_mark_update AFTER UPDATE ON roles
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.roles_mark_delete AFTER DELETE ON roles
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.role_members_mark_insert AFTER INSERT ON role_members
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.role_members_mark_update AFTER UPDATE ON role_members
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.role_members_mark_delete AFTER DELETE ON role_members
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.grants_mark_insert AFTER INSERT ON grants
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.grants_mark_update AFTER UPDATE ON grants
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;
CREATE TRIGGER sys.grants_mark_delete AFTER DELETE ON grants
BEGIN
    INSERT INTO rights_marks (mark_no) VALUES (NULL);
END;

-- Old passwords that users may still try, for those who tried some.
CREATE TABLE sys.password_tries (
    user_uuid TEXT PRIMARY KEY REFERENCES users (user_uuid) ON DELETE CASCADE,
    tries     REAL NOT NULL,
    tried_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Doors: a catalog that ever had a password or a token stays closed to those who show none, also when the last of them is
-- gone: the row is there. Triggers write it, so that earlier releases close the catalog too.
CREATE TABLE sys.closed (
    is_closed INTEGER PRIMARY KEY CHECK (is_closed = 1)
) WITHOUT ROWID;
INSERT INTO sys.closed (is_closed)
SELECT 1 WHERE EXISTS (SELECT 1 FROM sys.tokens) OR EXISTS (SELECT 1 FROM sys.users WHERE password_hash IS NOT NULL)
    OR EXISTS (SELECT 1 FROM sys.audit WHERE event IN ('TOKEN_CREATED', 'LOGIN'));
-- Whoever opens the store is `local`: a password of that name would be an administrator's without a person behind it.
UPDATE sys.users SET password_hash = NULL WHERE user_name = 'local';
CREATE TRIGGER sys.tokens_close AFTER INSERT ON tokens
BEGIN
    INSERT OR IGNORE INTO closed (is_closed) VALUES (1);
END;
CREATE TRIGGER sys.passwords_close AFTER UPDATE OF password_hash ON users
WHEN new.password_hash IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO closed (is_closed) VALUES (1);
END;
CREATE TRIGGER sys.users_close AFTER INSERT ON users
WHEN new.password_hash IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO closed (is_closed) VALUES (1);
END;

-- Locks: PostgreSQL's. Here one transaction writes at a time, and nothing is ever in it.
CREATE TABLE sys.locks (
    lock_name TEXT PRIMARY KEY
) STRICT;
