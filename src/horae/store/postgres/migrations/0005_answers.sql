-- What was answered to requests that carry a key of their own, so that one that is sent twice is done once. A release
-- before this one has no use for it and goes on reading and writing.
-- min_reader: 1

-- status and body are NULL while a request is being answered. The key is a digest: it tells nobody who asked.
CREATE TABLE sys.kept_answers (
    answer_key  TEXT COLLATE "C" PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    begun_at    BIGINT NOT NULL,
    status      INTEGER,
    body        BYTEA
);
CREATE INDEX kept_answers_begun ON sys.kept_answers (begun_at);
