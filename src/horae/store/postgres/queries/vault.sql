-- People and their rights, settings, procedures, secrets, the sealed trail. `:rows` stands for the rows given, as `given`.

-- name: lock_people
-- Names are one space for users and roles. Jobs that refer to a user only share that row, and go on.
LOCK TABLE sys.users, sys.roles IN SHARE ROW EXCLUSIVE MODE;

-- name: find_principals
SELECT user_name, user_uuid, false FROM sys.users WHERE user_name = ANY (:names::text[])
UNION ALL
SELECT role_name, role_uuid, true FROM sys.roles WHERE role_name = ANY (:names::text[]);

-- name: lock_users
SELECT user_name FROM sys.users WHERE user_name = ANY (:names::text[]) FOR KEY SHARE;

-- name: lock_roles
SELECT role_name FROM sys.roles WHERE role_name = ANY (:names::text[]) FOR KEY SHARE;

-- name: read_users
SELECT user_uuid, user_name, is_admin, state, password_hash IS NOT NULL, created_at
FROM sys.users
WHERE :name::text IS NULL OR user_name = :name
ORDER BY user_name COLLATE "C";

-- name: read_password
SELECT password_hash FROM sys.users WHERE user_name = :name;

-- name: insert_user
INSERT INTO sys.users (user_uuid, user_name, password_hash, is_admin, created_at)
VALUES (:user::uuid, :name, :password, :admin, :now);

-- name: lock_user
SELECT is_admin, state FROM sys.users WHERE user_uuid = :user::uuid FOR UPDATE;

-- name: update_user
UPDATE sys.users SET
    password_hash = coalesce(:password::text, password_hash), is_admin = coalesce(:admin::boolean, is_admin),
    state = coalesce(:state::text, state)
WHERE user_uuid = :user::uuid;

-- name: name_user
UPDATE sys.users SET database_role = :role WHERE user_uuid = :principal::uuid;

-- name: name_role
UPDATE sys.roles SET database_role = :role WHERE role_uuid = :principal::uuid;

-- name: delete_user
DELETE FROM sys.users WHERE user_uuid = :user::uuid;

-- name: lock_tries
INSERT INTO sys.password_tries (user_uuid, tries, tried_at)
SELECT user_uuid, :burst, :now FROM sys.users WHERE user_uuid = :user::uuid
ON CONFLICT (user_uuid) DO UPDATE SET tried_at = password_tries.tried_at
RETURNING tries, tried_at;

-- name: keep_tries
UPDATE sys.password_tries SET tries = :tries, tried_at = :now WHERE user_uuid = :user::uuid;

-- name: forget_tries
DELETE FROM sys.password_tries WHERE user_uuid = :user::uuid;

-- name: forget_answers_to
DELETE FROM sys.kept_answers WHERE user_uuid = :user::uuid;

-- name: end_sessions
DELETE FROM sys.sessions WHERE user_uuid = :user::uuid;

-- name: revoke_tokens_of
UPDATE sys.tokens SET revoked_at = :now WHERE user_uuid = :user::uuid AND revoked_at IS NULL
RETURNING token_uuid, coalesce(label, '');

-- name: read_roles
SELECT role_uuid, role_name, coalesce(description, ''), created_at
FROM sys.roles
WHERE :name::text IS NULL OR role_name = :name
ORDER BY role_name COLLATE "C";

-- name: insert_role
INSERT INTO sys.roles (role_uuid, role_name, description, created_at) VALUES (:role::uuid, :name, :description, :now);

-- name: lock_role
SELECT 1 FROM sys.roles WHERE role_uuid = :role::uuid FOR UPDATE;

-- name: delete_role
DELETE FROM sys.roles WHERE role_uuid = :role::uuid;

-- name: read_members
SELECT r.role_uuid, r.role_name, u.user_uuid, u.user_name
FROM sys.role_members m
JOIN sys.roles r ON r.role_uuid = m.role_uuid
JOIN sys.users u ON u.user_uuid = m.user_uuid
WHERE :user::uuid IS NULL OR m.user_uuid = :user::uuid
ORDER BY r.role_name COLLATE "C", u.user_name COLLATE "C";

-- name: insert_members(role uuid, user_uuid uuid, granted_at bigint, granted_by text)
INSERT INTO sys.role_members (role_uuid, user_uuid, granted_at, granted_by)
SELECT role, user_uuid, granted_at, granted_by FROM :rows
ON CONFLICT (role_uuid, user_uuid) DO NOTHING;

-- name: delete_members(role uuid, user_uuid uuid)
DELETE FROM sys.role_members m USING :rows WHERE m.role_uuid = given.role AND m.user_uuid = given.user_uuid;

-- name: read_grants
SELECT grantee_uuid, privilege, object_name FROM sys.grants
WHERE :grantees::uuid[] IS NULL OR grantee_uuid = ANY (:grantees::uuid[])
ORDER BY grantee_uuid, privilege COLLATE "C", object_name COLLATE "C";

-- name: insert_grants(grantee uuid, privilege text, kind text, name text, granted_at bigint, granted_by text)
INSERT INTO sys.grants (grantee_uuid, privilege, object_kind, object_name, granted_at, granted_by)
SELECT grantee, privilege, kind, name, granted_at, granted_by FROM :rows
ON CONFLICT (grantee_uuid, privilege, object_kind, object_name) DO NOTHING;

-- name: delete_grants(grantee uuid, privilege text, kind text, name text)
DELETE FROM sys.grants g USING :rows
WHERE g.grantee_uuid = given.grantee AND g.privilege = given.privilege AND g.object_kind = given.kind
    AND g.object_name = given.name;

-- name: delete_grants_of
DELETE FROM sys.grants WHERE grantee_uuid = :grantee::uuid;

-- name: delete_grants_on_jobs
DELETE FROM sys.grants WHERE object_kind = 'JOB' AND object_name = ANY (:names::text[]);

-- name: jobs_owned_by
SELECT job_name FROM sys.jobs WHERE created_by_user_uuid = :user::uuid ORDER BY job_name LIMIT 3;

-- name: jobs_running_as
SELECT job_name FROM sys.jobs WHERE run_as_role_uuid = :role::uuid ORDER BY job_name LIMIT 3;

-- name: read_owner
SELECT u.user_name FROM sys.jobs j JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid WHERE j.job_uuid = :job::uuid;

-- name: set_owner
UPDATE sys.jobs SET created_by_user_uuid = :user::uuid, updated_at = :now WHERE job_uuid = :job::uuid;

-- name: read_settings
SELECT setting_name, value FROM sys.settings ORDER BY setting_name COLLATE "C";

-- name: lock_settings
-- Two that set what bounds each other would not see each other's values.
INSERT INTO sys.locks AS l (lock_name) VALUES ('settings')
ON CONFLICT (lock_name) DO UPDATE SET lock_name = excluded.lock_name;

-- name: upsert_setting
INSERT INTO sys.settings (setting_name, value, updated_at, updated_by) VALUES (:name, :value, :now, :by)
ON CONFLICT (setting_name) DO UPDATE SET
    value = excluded.value, updated_at = excluded.updated_at, updated_by = excluded.updated_by;

-- name: delete_setting
DELETE FROM sys.settings WHERE setting_name = :name;

-- name: lock_procedures
LOCK TABLE sys.procedures IN SHARE ROW EXCLUSIVE MODE;

-- name: read_procedures
SELECT procedure_name, handler FROM sys.procedures ORDER BY procedure_name COLLATE "C";

-- name: upsert_procedures(procedure_uuid uuid, procedure_name text, handler text, created_at bigint, created_by text)
INSERT INTO sys.procedures (procedure_uuid, procedure_name, handler, created_at, created_by)
SELECT procedure_uuid, procedure_name, handler, created_at, created_by FROM :rows
ON CONFLICT (procedure_uuid) DO UPDATE SET handler = excluded.handler;

-- name: read_secret
SELECT secret_value, key_id, updated_at FROM sys.secrets WHERE secret_name = :name;

-- name: read_job_secret
SELECT secret_value, key_id, updated_at FROM sys.job_secrets WHERE job_uuid = :job::uuid AND secret_key = :name;

-- name: list_secrets
SELECT secret_name, NULL::text, secret_value, key_id, updated_at FROM sys.secrets
UNION ALL
SELECT s.secret_key, j.job_name, s.secret_value, s.key_id, s.updated_at
FROM sys.job_secrets s JOIN sys.jobs j ON j.job_uuid = s.job_uuid;

-- name: insert_secret
INSERT INTO sys.secrets (secret_name, secret_value, key_id, updated_at) VALUES (:name, :value, :key, :now)
ON CONFLICT (secret_name) DO NOTHING
RETURNING 1;

-- name: insert_job_secret
INSERT INTO sys.job_secrets (job_uuid, secret_key, secret_value, key_id, updated_at)
VALUES (:job::uuid, :name, :value, :key, :now)
ON CONFLICT (job_uuid, secret_key) DO NOTHING
RETURNING 1;

-- name: update_secret
UPDATE sys.secrets SET secret_value = :value, key_id = :key, updated_at = :now
WHERE secret_name = :name AND (:was::bytea IS NULL OR secret_value = :was::bytea)
RETURNING 1;

-- name: update_job_secret
UPDATE sys.job_secrets SET secret_value = :value, key_id = :key, updated_at = :now
WHERE job_uuid = :job::uuid AND secret_key = :name AND (:was::bytea IS NULL OR secret_value = :was::bytea)
RETURNING 1;

-- name: delete_secret
DELETE FROM sys.secrets WHERE secret_name = :name RETURNING 1;

-- name: delete_job_secret
DELETE FROM sys.job_secrets WHERE job_uuid = :job::uuid AND secret_key = :name RETURNING 1;

-- name: lock_seals
-- One seals at a time; readers go on. A later statement sees what the one before has committed.
LOCK TABLE sys.audit_seals IN SHARE ROW EXCLUSIVE MODE;

-- name: last_seal
SELECT seal_no, last_position, digest FROM sys.audit_seals ORDER BY seal_no DESC LIMIT 1;

-- name: seal_numbered
SELECT last_position, digest FROM sys.audit_seals WHERE seal_no = :number;

-- name: keyed_after
SELECT seal_no FROM sys.audit_seals WHERE seal_no > :number AND mac IS NOT NULL LIMIT 1;

-- name: read_reach
SELECT seal_no, last_position, digest, mac FROM sys.audit_heads;

-- name: keep_reach
INSERT INTO sys.audit_heads (head_no, seal_no, last_position, digest, mac) VALUES (1, :number, :place, :digest, :mac)
ON CONFLICT (head_no) DO UPDATE SET
    seal_no = excluded.seal_no, last_position = excluded.last_position, digest = excluded.digest, mac = excluded.mac;

-- name: last_place
SELECT coalesce(max(position), 0) FROM sys.audit WHERE position IS NOT NULL;

-- name: rows_to_seal
-- Whose place was taken away has its digest still, and is for whoever verifies to find.
SELECT audit_no, position, at, event, job_uuid, job_run_uuid, actor, outcome, details, digest, seal
FROM sys.audit
WHERE position IS NULL AND seal IS NULL
ORDER BY audit_no
LIMIT :limit;

-- name: unsealed_rows
SELECT audit_no, position, at, event, job_uuid, job_run_uuid, actor, outcome, details, digest, seal
FROM sys.audit
WHERE position IS NULL AND audit_no > :after
ORDER BY audit_no
LIMIT :limit;

-- name: sealed_rows
SELECT audit_no, position, at, event, job_uuid, job_run_uuid, actor, outcome, details, digest, seal
FROM sys.audit
WHERE position > :after
ORDER BY position
LIMIT :limit;

-- name: place_rows(audit_no bigint, position bigint, seal text)
UPDATE sys.audit SET position = given.position, seal = given.seal FROM :rows WHERE audit.audit_no = given.audit_no;

-- name: insert_seal
INSERT INTO sys.audit_seals (seal_no, first_position, last_position, digest, previous, sealed_at, rows_digest, mac)
VALUES (:number, :first, :last, :digest, :previous, :now, :rows_digest, :mac);

-- name: read_seals
SELECT seal_no, first_position, last_position, digest, previous, sealed_at, rows_digest, mac FROM sys.audit_seals
WHERE seal_no > :after
ORDER BY seal_no
LIMIT :limit;

-- name: trail_ends
-- Numbers are also given to what was rolled back: only where no row is left do they tell anything.
SELECT
    coalesce((SELECT max(audit_no) FROM sys.audit), 0),
    coalesce((SELECT max(at) FROM sys.audit), 0),
    coalesce(
        (SELECT max(audit_no) FROM sys.audit),
        (SELECT last_value FROM pg_catalog.pg_sequences
            WHERE schemaname = 'sys' AND sequencename = 'audit_audit_no_seq'),
        0
    ),
    coalesce((SELECT max(completed_at) FROM sys.job_runs WHERE state = 'COMPLETED'), 0),
    coalesce((SELECT max(created_at) FROM sys.job_versions), 0),
    false;

-- name: read_rights
-- Who there is and what they may, as text; not when it was granted, nor by whom. With rows of the trail, among its newest
-- alone: all in one statement, so that a change of rights and the row that tells of it are both seen, or neither.
SELECT 'user', user_uuid::text, user_name, coalesce(password_hash, ''), is_admin::integer::text, state::text FROM sys.users
UNION ALL
SELECT 'role', role_uuid::text, role_name, '', '', '' FROM sys.roles
UNION ALL
SELECT 'member', role_uuid::text, user_uuid::text, '', '', '' FROM sys.role_members
UNION ALL
SELECT 'grant', grantee_uuid::text, privilege, object_kind, object_name, '' FROM sys.grants
UNION ALL
SELECT 'newest', coalesce(max(audit_no), 0)::text, '', '', '', '' FROM sys.audit
UNION ALL
SELECT 'row', audit_no::text, event, coalesce(details, ''), '', '' FROM sys.audit
WHERE audit_no > (SELECT max(audit_no) FROM sys.audit) - 1000 AND outcome = 'OK' AND event = ANY (:events::text[]);

-- name: take_marks
DELETE FROM sys.rights_marks RETURNING 1;

-- name: written_versions
SELECT v.job_uuid, v.version, v.definition, v.defaults, v.author
FROM unnest(:versions::text[]) AS wanted (version)
JOIN sys.job_versions v ON v.job_uuid = left(wanted.version, 36)::uuid AND v.version = substr(wanted.version, 38)::bigint;

-- name: present_versions
SELECT job_uuid, version FROM sys.jobs WHERE job_uuid > :after::uuid ORDER BY job_uuid LIMIT :limit;

-- name: read_audit_key
SELECT wrapped, key_id, created_at FROM sys.audit_keys;

-- name: insert_audit_key
INSERT INTO sys.audit_keys (key_no, wrapped, key_id, created_at) VALUES (1, :wrapped::bytea, :key, :now)
ON CONFLICT (key_no) DO NOTHING
RETURNING 1;

-- name: rewrap_audit_key
UPDATE sys.audit_keys SET wrapped = :wrapped::bytea, key_id = :key WHERE wrapped = :was::bytea RETURNING 1;

-- name: settled_runs
SELECT run_no, job_run_uuid, state, fence, completed_at FROM sys.job_runs
WHERE run_no = ANY (:runs::bigint[])
ORDER BY run_no;

-- name: completed_runs
SELECT run_no FROM sys.job_runs
WHERE run_no > :after AND state IN ('COMPLETED', 'COMPLETED_WITH_ERRORS') AND completed_at <= :until
ORDER BY run_no
LIMIT :limit;

-- name: runs_by_uuid
SELECT run_no, job_run_uuid, state, fence, completed_at FROM sys.job_runs
WHERE job_run_uuid = ANY (:runs::uuid[])
ORDER BY run_no;

-- name: job_of_attempt
SELECT j.job_name FROM sys.attempt_output f
JOIN sys.job_runs r ON r.run_no = f.run_no
JOIN sys.jobs j ON j.job_uuid = r.job_uuid
WHERE f.attempt_uuid = :attempt::uuid AND f.chunk_no = 0;
