PRAGMA application_id = 1096044101;
BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'autotune.records','0001_initial','2026-11-22 20:51:49.034370+00:00');
INSERT INTO "_sqlite_migrations" VALUES(2,'autotune.records','0002_plans','2026-11-22 20:51:49.056507+00:00');
INSERT INTO "_sqlite_migrations" VALUES(3,'autotune.records','0003_replays','2026-11-22 20:51:49.057641+00:00');
INSERT INTO "_sqlite_migrations" VALUES(4,'autotune.records','0004_families','2026-11-22 20:51:49.058158+00:00');
INSERT INTO "_sqlite_migrations" VALUES(5,'autotune.records','0005_evidence','2026-11-22 20:51:49.059099+00:00');
INSERT INTO "_sqlite_migrations" VALUES(6,'autotune.records','0006_disturbed','2026-11-22 20:51:49.059618+00:00');
INSERT INTO "_sqlite_migrations" VALUES(7,'autotune.records','0007_compact','2026-11-22 20:51:49.070600+00:00');
INSERT INTO "_sqlite_migrations" VALUES(8,'autotune.records','0008_beside','2026-11-23 06:48:00.000000+00:00');
INSERT INTO "_sqlite_migrations" VALUES(9,'autotune.records','0009_untuned','2026-11-29 03:50:00.000000+00:00');
CREATE TABLE bases (
        id          INTEGER PRIMARY KEY,
        workload_id INTEGER NOT NULL REFERENCES workloads (id),
        template    TEXT NOT NULL,
        details     BLOB NOT NULL,
        UNIQUE (workload_id, template)
    );
INSERT INTO "bases" VALUES(1,1,'conv2d.direct',X'78DA558F618AC3201085EF327F2B41ED2E85DC60CF508B18336D068C0635D95D4AEFBE6343A1FB4BE67DEFF966EEE0D69AEA1AD16E980BA5083DC84E1D1C08185CF51316E88F027C8A57BA31BC1BA8382FC15534D09B06363D762365F4D580604CA121F5E02F28DBC99589739415CF216CF35B93E62A5667F763DD502CE60CFD171745AABFBB9C31ECB2ECA480B8CE03F27012B0641CC9571C9F48EAA6A401EDED1AD2C23B6B29BB4F01054BEBB2C43E28ADAC70D23D534A3743C56687F3D9300AB4DF90BEF9511F970B075EE7B2E9DFB10DA580D9458FFB12EAF107D8C86B90');
CREATE TABLE interfaces (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, json TEXT NOT NULL);
INSERT INTO "interfaces" VALUES(1,'74234e98afe7498f','null');
CREATE TABLE plans (
            model_key       TEXT NOT NULL,
            target_key      TEXT NOT NULL,
            tuned           INTEGER NOT NULL CHECK (tuned IN (0, 1)),
            tuned_seconds   REAL NOT NULL CHECK (tuned_seconds > 0),
            untuned_seconds REAL NOT NULL CHECK (untuned_seconds > 0),
            session_id      TEXT,
            created         REAL NOT NULL, speedup REAL, low REAL, high REAL, rounds INTEGER, error REAL, programs TEXT NOT NULL DEFAULT '', asked_for INTEGER NOT NULL DEFAULT 0 CHECK (asked_for IN (0, 1)), disturbance TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (model_key, target_key)
        ) WITHOUT ROWID
        ;
INSERT INTO "plans" VALUES('m','t',0,2.0,1.0,NULL,3.0,NULL,NULL,NULL,NULL,NULL,'',0,'');
CREATE TABLE sessions (
        id        TEXT PRIMARY KEY NOT NULL,
        state     TEXT NOT NULL CHECK (state IN ('running', 'finished', 'interrupted')),
        started   REAL NOT NULL,
        heartbeat REAL NOT NULL,
        finished  REAL,
        pid       INTEGER NOT NULL,
        host      TEXT NOT NULL,
        command   TEXT NOT NULL,
        versions  TEXT NOT NULL
    );
CREATE TABLE targets (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, json TEXT NOT NULL);
INSERT INTO "targets" VALUES(1,'8c775ba6e5d10953','{"arch":"x86_64","cpu":"znver5","features":["avx2","avx512f"],"l1_bytes":49152,"l2_bytes":1048576,"l3_bytes":33554432,"num_threads":1}');
CREATE TABLE trials (
        id           INTEGER PRIMARY KEY,
        workload_id  INTEGER NOT NULL REFERENCES workloads (id),
        target_id    INTEGER NOT NULL REFERENCES targets (id),
        interface_id INTEGER NOT NULL REFERENCES interfaces (id),
        residency    TEXT NOT NULL,
        config_key   TEXT NOT NULL,
        seconds      REAL CHECK (seconds > 0),
        verified     INTEGER NOT NULL CHECK (verified IN (0, 1)),
        disturbed    INTEGER NOT NULL CHECK (disturbed IN (0, 1)),
        failure_kind TEXT,
        created      REAL NOT NULL,
        base_id      INTEGER REFERENCES bases (id),
        details      BLOB NOT NULL,
        UNIQUE (workload_id, target_id, interface_id, residency, config_key),
        CHECK ((seconds IS NULL) <> (failure_kind IS NULL)),
        CHECK (verified = 0 OR seconds IS NOT NULL)
    );
INSERT INTO "trials" VALUES(1,1,1,1,'L2','8c4a28e421dc4774',0.001001,1,0,NULL,1001.0,1,X'78F9D8C86B90AB1E0D4FAA862700D8C86B90');
INSERT INTO "trials" VALUES(2,1,1,1,'','ddc23cb5770cc5e3',NULL,0,0,'compile',1002.0,1,X'78F9D8C86B90AB2623A08C400195969899535A941A9F0B746F623AC4AEDC02A00285F2D4BC1285F2A2FCBC747C6EA9050016DF2A5B');
CREATE TABLE workloads (
        id          INTEGER PRIMARY KEY,
        key         TEXT NOT NULL UNIQUE,
        anchor_key  TEXT,
        family_key  TEXT,
        json        TEXT NOT NULL,
        description TEXT NOT NULL
    );
INSERT INTO "workloads" VALUES(1,'42ae0d689dcb09ad','anchor',NULL,'{"op":"conv2d"}','conv2d 64x64');
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX workloads_anchor ON workloads (anchor_key);
CREATE INDEX workloads_family ON workloads (family_key);
CREATE INDEX trials_best ON trials (workload_id, target_id, disturbed, seconds) WHERE verified = 1;
CREATE INDEX trials_failed ON trials (workload_id, target_id, failure_kind) WHERE failure_kind IS NOT NULL;
CREATE INDEX trials_created ON trials (created);
COMMIT;
