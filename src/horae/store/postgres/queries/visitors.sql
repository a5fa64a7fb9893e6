-- Tokens, sessions, and answers kept for those who ask again.

-- name: has_credentials
SELECT EXISTS (SELECT 1 FROM sys.users WHERE password_hash IS NOT NULL AND state = 'ENABLED') OR EXISTS (
    SELECT 1 FROM sys.tokens t JOIN sys.users u ON u.user_uuid = t.user_uuid
    WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now) AND u.state = 'ENABLED'
);

-- name: is_closed
SELECT EXISTS (SELECT 1 FROM sys.closed);

-- name: open_catalog
DELETE FROM sys.closed RETURNING 1;

-- name: insert_token
INSERT INTO sys.tokens (token_uuid, user_uuid, token_hash, label, created_at, expires_at)
VALUES (:token::uuid, :user::uuid, :hash, :label, :now, :expires);

-- name: read_tokens
SELECT t.token_uuid, u.user_name, coalesce(t.label, ''), t.created_at, t.expires_at, t.revoked_at
FROM sys.tokens t
JOIN sys.users u ON u.user_uuid = t.user_uuid
WHERE (:user::uuid IS NULL OR t.user_uuid = :user::uuid) AND (:token::uuid IS NULL OR t.token_uuid = :token::uuid)
ORDER BY t.created_at DESC, t.token_uuid DESC;

-- name: lock_token
SELECT 1 FROM sys.tokens WHERE token_uuid = :token::uuid FOR UPDATE;

-- name: revoke_token
UPDATE sys.tokens SET revoked_at = :now WHERE token_uuid = :token::uuid;

-- name: token_user
SELECT u.user_name FROM sys.tokens t
JOIN sys.users u ON u.user_uuid = t.user_uuid
WHERE t.token_hash = :hash AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)
    AND u.state = 'ENABLED';

-- name: end_old_sessions
DELETE FROM sys.sessions WHERE expires_at <= :now;

-- name: insert_session
INSERT INTO sys.sessions (session_hash, user_uuid, created_at, expires_at)
VALUES (:hash, :user::uuid, :now, :expires);

-- name: session_user
SELECT u.user_name FROM sys.sessions s
JOIN sys.users u ON u.user_uuid = s.user_uuid
WHERE s.session_hash = :hash AND s.expires_at > :now AND u.state = 'ENABLED';

-- name: delete_session
DELETE FROM sys.sessions WHERE session_hash = :hash
RETURNING (SELECT u.user_name FROM sys.users u WHERE u.user_uuid = sessions.user_uuid);

-- name: insert_answer
INSERT INTO sys.kept_answers (answer_key, fingerprint, begun_at, user_uuid) VALUES (:key, :fingerprint, :now, :user::uuid)
ON CONFLICT (answer_key) DO NOTHING
RETURNING 1;

-- name: read_answer
SELECT fingerprint, begun_at, status, body FROM sys.kept_answers WHERE answer_key = :key;

-- name: take_over_answer
UPDATE sys.kept_answers SET fingerprint = :fingerprint, begun_at = :now
WHERE answer_key = :key AND status IS NULL AND begun_at = :was
RETURNING 1;

-- name: note_answer
UPDATE sys.kept_answers SET body = :body::bytea, begun_at = :now
WHERE answer_key = :key AND status IS NULL AND fingerprint = :fingerprint AND body IS NOT DISTINCT FROM :was::bytea
RETURNING 1;

-- name: finish_answer
UPDATE sys.kept_answers SET status = :status, body = :body::bytea
WHERE answer_key = :key AND status IS NULL AND fingerprint = :fingerprint AND body IS NOT DISTINCT FROM :was::bytea
RETURNING 1;

-- name: drop_answer
DELETE FROM sys.kept_answers WHERE answer_key = :key AND status IS NULL AND body IS NULL AND begun_at = :begun
RETURNING 1;

-- name: trim_answers
DELETE FROM sys.kept_answers WHERE status IS NOT NULL AND answer_key IN (
    SELECT found.answer_key FROM (
        SELECT answer_key, sum(coalesce(length(body), 0) + :row) OVER (ORDER BY begun_at DESC, answer_key DESC) AS taken
        FROM sys.kept_answers WHERE user_uuid = :user::uuid
    ) found WHERE found.taken > :most
)
RETURNING 1;

-- name: forget_answers
DELETE FROM sys.kept_answers WHERE begun_at < :before RETURNING 1;
