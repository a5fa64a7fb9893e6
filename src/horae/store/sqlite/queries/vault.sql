-- People and their rights, settings, procedures, secrets, the sealed trail.

-- name: lock_people
-- PostgreSQL locks tables here: names are one space for users and roles.
SELECT 1;

-- name: find_principals
SELECT user_name, user_uuid, 0 FROM sys.users WHERE user_name IN (SELECT value FROM json_each(:names))
UNION ALL
SELECT role_name, role_uuid, 1 FROM sys.roles WHERE role_name IN (SELECT value FROM json_each(:names));

-- name: lock_users
SELECT user_name FROM sys.users WHERE user_name IN (SELECT value FROM json_each(:names));

-- name: lock_roles
SELECT role_name FROM sys.roles WHERE role_name IN (SELECT value FROM json_each(:names));

-- name: read_users
SELECT user_uuid, user_name, is_admin, state, password_hash IS NOT NULL, created_at
FROM sys.users
WHERE :name IS NULL OR user_name = :name
ORDER BY user_name;

-- name: read_password
SELECT password_hash FROM sys.users WHERE user_name = :name;

-- name: insert_user
INSERT INTO sys.users (user_uuid, user_name, password_hash, is_admin, created_at)
VALUES (:user, :name, :password, :admin, :now);

-- name: lock_user
SELECT is_admin, state FROM sys.users WHERE user_uuid = :user;

-- name: update_user
UPDATE sys.users SET
    password_hash = coalesce(:password, password_hash), is_admin = coalesce(:admin, is_admin),
    state = coalesce(:state, state)
WHERE user_uuid = :user;

-- name: name_user
UPDATE sys.users SET database_role = :role WHERE user_uuid = :principal;

-- name: name_role
UPDATE sys.roles SET database_role = :role WHERE role_uuid = :principal;

-- name: delete_user
DELETE FROM sys.users WHERE user_uuid = :user;

-- name: lock_tries
INSERT INTO sys.password_tries (user_uuid, tries, tried_at)
SELECT user_uuid, :burst, :now FROM sys.users WHERE user_uuid = :user
ON CONFLICT (user_uuid) DO UPDATE SET tried_at = password_tries.tried_at
RETURNING tries, tried_at;

-- name: keep_tries
UPDATE sys.password_tries SET tries = :tries, tried_at = :now WHERE user_uuid = :user;

-- name: forget_tries
DELETE FROM sys.password_tries WHERE user_uuid = :user;

-- name: forget_answers_to
DELETE FROM sys.kept_answers WHERE user_uuid = :user;

-- name: end_sessions
DELETE FROM sys.sessions WHERE user_uuid = :user;

-- name: revoke_tokens_of
UPDATE sys.tokens SET revoked_at = :now WHERE user_uuid = :user AND revoked_at IS NULL
RETURNING token_uuid, coalesce(label, '');

-- name: read_roles
SELECT role_uuid, role_name, coalesce(description, ''), created_at
FROM sys.roles
WHERE :name IS NULL OR role_name = :name
ORDER BY role_name;

-- name: insert_role
INSERT INTO sys.roles (role_uuid, role_name, description, created_at) VALUES (:role, :name, :description, :now);

-- name: lock_role
SELECT 1 FROM sys.roles WHERE role_uuid = :role;

-- name: delete_role
DELETE FROM sys.roles WHERE role_uuid = :role;

-- name: read_members
SELECT r.role_uuid, r.role_name, u.user_uuid, u.user_name
FROM sys.role_members m
JOIN sys.roles r ON r.role_uuid = m.role_uuid
JOIN sys.users u ON u.user_uuid = m.user_uuid
WHERE :user IS NULL OR m.user_uuid = :user
ORDER BY r.role_name, u.user_name;

-- name: insert_members(role, user_uuid, granted_at, granted_by)
INSERT INTO sys.role_members (role_uuid, user_uuid, granted_at, granted_by)
VALUES (:role, :user_uuid, :granted_at, :granted_by)
ON CONFLICT (role_uuid, user_uuid) DO NOTHING;

-- name: delete_members(role, user_uuid)
DELETE FROM sys.role_members WHERE role_uuid = :role AND user_uuid = :user_uuid;

-- name: read_grants
SELECT grantee_uuid, privilege, object_name FROM sys.grants
WHERE :grantees IS NULL OR grantee_uuid IN (SELECT value FROM json_each(:grantees))
ORDER BY grantee_uuid, privilege, object_name;

-- name: insert_grants(grantee, privilege, kind, name, granted_at, granted_by)
INSERT INTO sys.grants (grantee_uuid, privilege, object_kind, object_name, granted_at, granted_by)
VALUES (:grantee, :privilege, :kind, :name, :granted_at, :granted_by)
ON CONFLICT (grantee_uuid, privilege, object_kind, object_name) DO NOTHING;

-- name: delete_grants(grantee, privilege, kind, name)
DELETE FROM sys.grants
WHERE grantee_uuid = :grantee AND privilege = :privilege AND object_kind = :kind AND object_name = :name;

-- name: delete_grants_of
DELETE FROM sys.grants WHERE grantee_uuid = :grantee;

-- name: delete_grants_on_jobs
DELETE FROM sys.grants WHERE object_kind = 'JOB' AND object_name IN (SELECT value FROM json_each(:names));

-- name: jobs_owned_by
SELECT job_name FROM sys.jobs WHERE created_by_user_uuid = :user ORDER BY job_name LIMIT 3;

-- name: jobs_running_as
SELECT job_name FROM sys.jobs WHERE run_as_role_uuid = :role ORDER BY job_name LIMIT 3;

-- name: read_owner
SELECT u.user_name FROM sys.jobs j JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid WHERE j.job_uuid = :job;

-- name: set_owner
UPDATE sys.jobs SET created_by_user_uuid = :user, updated_at = :now WHERE job_uuid = :job;

-- name: read_settings
SELECT setting_name, value FROM sys.settings ORDER BY setting_name;

-- name: lock_settings
-- PostgreSQL takes a lock here.
SELECT 1;

-- name: upsert_setting
INSERT INTO sys.settings (setting_name, value, updated_at, updated_by) VALUES (:name, :value, :now, :by)
ON CONFLICT (setting_name) DO UPDATE SET
    value = excluded.value, updated_at = excluded.updated_at, updated_by = excluded.updated_by;

-- name: delete_setting
DELETE FROM sys.settings WHERE setting_name = :name;

-- name: lock_procedures
-- PostgreSQL locks the table here.
SELECT 1;

-- name: read_procedures
SELECT procedure_name, handler FROM sys.procedures ORDER BY procedure_name;

-- name: upsert_procedures(procedure_uuid, procedure_name, handler, created_at, created_by)
INSERT INTO sys.procedures (procedure_uuid, procedure_name, handler, created_at, created_by)
VALUES (:procedure_uuid, :procedure_name, :handler, :created_at, :created_by)
ON CONFLICT (procedure_uuid) DO UPDATE SET handler = excluded.handler;

-- name: read_secret
SELECT secret_value, key_id, updated_at FROM sys.secrets WHERE secret_name = :name;

-- name: read_job_secret
SELECT secret_value, key_id, updated_at FROM sys.job_secrets WHERE job_uuid = :job AND secret_key = :name;

-- name: list_secrets
SELECT secret_name, NULL, secret_value, key_id, updated_at FROM sys.secrets
UNION ALL
SELECT s.secret_key, j.job_name, s.secret_value, s.key_id, s.updated_at
FROM sys.job_secrets s JOIN sys.jobs j ON j.job_uuid = s.job_uuid;

-- name: insert_secret
INSERT INTO sys.secrets (secret_name, secret_value, key_id, updated_at) VALUES (:name, :value, :key, :now)
ON CONFLICT (secret_name) DO NOTHING
RETURNING 1;

-- name: insert_job_secret
INSERT INTO sys.job_secrets (job_uuid, secret_key, secret_value, key_id, updated_at)
VALUES (:job, :name, :value, :key, :now)
ON CONFLICT (job_uuid, secret_key) DO NOTHING
RETURNING 1;

-- name: update_secret
UPDATE sys.secrets SET secret_value = :value, key_id = :key, updated_at = :now
WHERE secret_name = :name AND (:was IS NULL OR secret_value = :was)
RETURNING 1;

-- name: update_job_secret
UPDATE sys.job_secrets SET secret_value = :value, key_id = :key, updated_at = :now
WHERE job_uuid = :job AND secret_key = :name AND (:was IS NULL OR secret_value = :was)
RETURNING 1;

-- name: delete_secret
DELETE FROM sys.secrets WHERE secret_name = :name RETURNING 1;

-- name: delete_job_secret
DELETE FROM sys.job_secrets WHERE job_uuid = :job AND secret_key = :name RETURNING 1;

-- name: lock_seals
-- PostgreSQL locks the table here.
SELECT 1;

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
FROM sys.audit INDEXED BY audit_unsealed
WHERE position IS NULL AND seal IS NULL
ORDER BY audit_no
LIMIT :limit;

-- name: unsealed_rows
SELECT audit_no, position, at, event, job_uuid, job_run_uuid, actor, outcome, details, digest, seal
FROM sys.audit INDEXED BY audit_unsealed
WHERE position IS NULL AND audit_no > :after
ORDER BY audit_no
LIMIT :limit;

-- name: sealed_rows
SELECT audit_no, position, at, event, job_uuid, job_run_uuid, actor, outcome, details, digest, seal
FROM sys.audit INDEXED BY audit_position
WHERE position > :after
ORDER BY position
LIMIT :limit;

-- name: place_rows(audit_no, position, seal)
UPDATE sys.audit SET position = :position, seal = :seal WHERE audit_no = :audit_no;

-- name: insert_seal
INSERT INTO sys.audit_seals (seal_no, first_position, last_position, digest, previous, sealed_at, rows_digest, mac)
VALUES (:number, :first, :last, :digest, :previous, :now, :rows_digest, :mac);

-- name: read_seals
SELECT seal_no, first_position, last_position, digest, previous, sealed_at, rows_digest, mac FROM sys.audit_seals
WHERE seal_no > :after
ORDER BY seal_no
LIMIT :limit;

-- name: trail_ends
SELECT
    coalesce((SELECT max(audit_no) FROM sys.audit), 0),
    coalesce((SELECT max(at) FROM sys.audit), 0),
    coalesce((SELECT seq FROM sys.sqlite_sequence WHERE name = 'audit'), 0),
    coalesce((SELECT max(completed_at) FROM sys.job_runs WHERE state = 'COMPLETED'), 0),
    coalesce((SELECT max(created_at) FROM sys.job_versions), 0),
    1;

-- name: read_rights
-- Who there is and what they may, as text; not when it was granted, nor by whom. With rows of the trail, among its newest
-- alone: all in one statement, so that a change of rights and the row that tells of it are both seen, or neither.
SELECT 'user', user_uuid, user_name, coalesce(password_hash, ''), CAST(is_admin AS TEXT), state FROM sys.users
UNION ALL
SELECT 'role', role_uuid, role_name, '', '', '' FROM sys.roles
UNION ALL
SELECT 'member', role_uuid, user_uuid, '', '', '' FROM sys.role_members
UNION ALL
SELECT 'grant', grantee_uuid, privilege, object_kind, object_name, '' FROM sys.grants
UNION ALL
SELECT 'newest', coalesce(max(audit_no), 0), '', '', '', '' FROM sys.audit
UNION ALL
SELECT 'row', audit_no, event, coalesce(details, ''), '', '' FROM sys.audit
WHERE audit_no > (SELECT max(audit_no) FROM sys.audit) - 1000 AND outcome = 'OK'
    AND event IN (SELECT value FROM json_each(:events));

-- name: take_marks
DELETE FROM sys.rights_marks RETURNING 1;

-- name: written_versions
SELECT v.job_uuid, v.version, v.definition, v.defaults, v.author
FROM json_each(:versions) n
JOIN sys.job_versions v ON v.job_uuid = substr(n.value, 1, 36) AND v.version = CAST(substr(n.value, 38) AS INTEGER);

-- name: present_versions
SELECT job_uuid, version FROM sys.jobs WHERE job_uuid > :after ORDER BY job_uuid LIMIT :limit;

-- name: read_audit_key
SELECT wrapped, key_id, created_at FROM sys.audit_keys;

-- name: insert_audit_key
INSERT INTO sys.audit_keys (key_no, wrapped, key_id, created_at) VALUES (1, :wrapped, :key, :now)
ON CONFLICT (key_no) DO NOTHING
RETURNING 1;

-- name: rewrap_audit_key
UPDATE sys.audit_keys SET wrapped = :wrapped, key_id = :key WHERE wrapped = :was RETURNING 1;

-- name: settled_runs
SELECT run_no, job_run_uuid, state, fence, completed_at FROM sys.job_runs
WHERE run_no IN (SELECT value FROM json_each(:runs))
ORDER BY run_no;

-- name: completed_runs
SELECT run_no FROM sys.job_runs
WHERE run_no > :after AND state IN ('COMPLETED', 'COMPLETED_WITH_ERRORS') AND completed_at <= :until
ORDER BY run_no
LIMIT :limit;

-- name: runs_by_uuid
SELECT run_no, job_run_uuid, state, fence, completed_at FROM sys.job_runs
WHERE job_run_uuid IN (SELECT value FROM json_each(:runs))
ORDER BY run_no;

-- name: job_of_attempt
SELECT j.job_name FROM sys.attempt_output f
JOIN sys.job_runs r ON r.run_no = f.run_no
JOIN sys.jobs j ON j.job_uuid = r.job_uuid
WHERE f.attempt_uuid = :attempt AND f.chunk_no = 0;
