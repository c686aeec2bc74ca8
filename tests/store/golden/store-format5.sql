PRAGMA user_version = 5;
BEGIN TRANSACTION;
CREATE TABLE account (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, decision_id TEXT NOT NULL UNIQUE, scope TEXT NOT NULL, request BLOB NOT NULL,
    answer BLOB NOT NULL, model_version TEXT NOT NULL, learned_upto INTEGER NOT NULL, facts TEXT NOT NULL);
CREATE TABLE decision (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, snapshot_id TEXT NOT NULL,
    digest TEXT NOT NULL, content BLOB NOT NULL, UNIQUE (scope, snapshot_id));
CREATE TABLE granted (
    scope TEXT NOT NULL, kind TEXT NOT NULL, place INTEGER NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (scope, kind, place));
INSERT INTO "granted" VALUES('default','grant',0,'{"bytes": 8589934592.0, "device_ids": ["d0"], "job_id": "r", "planned": false, "since_s": 1000.0, "workload": "a"}');
INSERT INTO "granted" VALUES('default','slots',0,'{"device_id": "d0", "device_type": "cpu-core", "granule_bytes": 2147483648.0, "granules": 40, "oversubscription_ratio": 1.0}');
INSERT INTO "granted" VALUES('default','slots',1,'{"device_id": "d1", "device_type": "cpu-core", "granule_bytes": 2147483648.0, "granules": 40, "oversubscription_ratio": 1.0}');
CREATE TABLE ledger (scope TEXT PRIMARY KEY, revision INTEGER NOT NULL, now_s REAL NOT NULL);
INSERT INTO "ledger" VALUES('default',1,1000.0);
CREATE TABLE observation (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL,
    kind TEXT NOT NULL, result TEXT NOT NULL, reason TEXT NOT NULL, received_s REAL NOT NULL);
CREATE TABLE profile (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL);
CREATE TABLE promise (
    scope TEXT NOT NULL, place INTEGER NOT NULL, job_id TEXT NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (scope, place));
INSERT INTO "promise" VALUES('default',0,'starts','{"action": {"accepted": false, "cost": 0.0, "device_id": "d1", "device_ids": [], "job_id": "starts", "kind": "start_alone", "partner_id": "", "promised_by_s": 1120.0, "reason": "a device is free; no grant: its memory demand is unknown", "slowdown": 1.0, "slowdown_lower": 1.0, "slowdown_upper": 1.0}, "decision_ids": ["first"], "from_device_id": "", "since_s": 1000.0}');
INSERT INTO "promise" VALUES('default',1,'starts','{"action": {"accepted": true, "device_id": "", "device_ids": [], "job_id": "starts", "kind": "wait", "partner_id": "", "promised_by_s": 1110.0, "reason": "deadline"}, "decision_ids": ["first"], "from_device_id": ""}');
INSERT INTO "promise" VALUES('default',2,'waits','{"action": {"accepted": true, "device_id": "", "device_ids": [], "job_id": "waits", "kind": "wait", "partner_id": "", "promised_by_s": 1065.0, "reason": "deadline"}, "decision_ids": ["first"], "from_device_id": ""}');
CREATE TABLE snapshot (
    seq INTEGER NOT NULL, key TEXT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (key, seq));
CREATE INDEX observation_kind ON observation (kind) WHERE kind <> 'progress';
CREATE INDEX promise_job ON promise (job_id);
CREATE INDEX observation_usage ON observation (
    json_extract(content, '$.job_id'), json_extract(content, '$.end_s')) WHERE kind = 'memory_usage';
DELETE FROM "sqlite_sequence";
COMMIT;
