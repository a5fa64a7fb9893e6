-- How far the audit trail was sealed: its newest seal, which whoever makes it writes here too, with a code under the audit
-- key. Earlier releases seal without it.
-- min_reader: 1
CREATE TABLE sys.audit_heads (
    head_no       BIGINT PRIMARY KEY CHECK (head_no = 1),
    seal_no       BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    digest        TEXT NOT NULL,
    mac           TEXT
);
