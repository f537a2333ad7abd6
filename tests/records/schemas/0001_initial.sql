PRAGMA application_id = 1096044101;
BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'autotune.records','0001_initial','2026-11-22 20:51:47.660793+00:00');
CREATE TABLE interfaces (key TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "interfaces" VALUES('74234e98afe7498f','null');
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
CREATE TABLE targets (key TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "targets" VALUES('8c775ba6e5d10953','{"arch":"x86_64","cpu":"znver5","features":["avx2","avx512f"],"l1_bytes":49152,"l2_bytes":1048576,"l3_bytes":33554432,"num_threads":1}');
CREATE TABLE trials (
        id               INTEGER PRIMARY KEY,
        workload_key     TEXT NOT NULL REFERENCES workloads (key),
        target_key       TEXT NOT NULL REFERENCES targets (key),
        interface_key    TEXT NOT NULL REFERENCES interfaces (key),
        residency        TEXT NOT NULL,
        config_key       TEXT NOT NULL,
        config           TEXT NOT NULL,
        template         TEXT NOT NULL,
        steps            TEXT,
        ir_hash          TEXT NOT NULL,
        object_hash      TEXT NOT NULL,
        seconds          REAL CHECK (seconds > 0),
        spread           REAL,
        number           INTEGER,
        batches          INTEGER,
        probe_gflops     REAL,
        max_abs_err      REAL,
        max_rel_err      REAL,
        tolerance        REAL,
        verified         INTEGER NOT NULL CHECK (verified IN (0, 1)),
        failure_kind     TEXT,
        failure_message  TEXT,
        predicted        REAL,
        session_id       TEXT,
        created          REAL NOT NULL,
        llvm_version     TEXT NOT NULL,
        autotune_version TEXT NOT NULL,
        UNIQUE (workload_key, target_key, interface_key, residency, config_key),
        CHECK ((seconds IS NULL) <> (failure_kind IS NULL)),
        CHECK (verified = 0 OR seconds IS NOT NULL)
    );
INSERT INTO "trials" VALUES(1,'42ae0d689dcb09ad','8c775ba6e5d10953','74234e98afe7498f','L2','8c4a28e421dc4774','{"template":"conv2d.direct","tile":1}','conv2d.direct','[["split","ow",14]]','ir1','',0.001001,0.125,7,3,200.5,9e999,0.0,0.001,1,NULL,NULL,0.002,'s1',1001.0,'20.1','0.1+a');
INSERT INTO "trials" VALUES(2,'42ae0d689dcb09ad','8c775ba6e5d10953','74234e98afe7498f','','ddc23cb5770cc5e3','{"template":"conv2d.direct","tile":2}','conv2d.direct',NULL,'','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'compile','compile went wrong',NULL,NULL,1002.0,'','');
CREATE TABLE workloads (
        key         TEXT PRIMARY KEY NOT NULL,
        anchor_key  TEXT,
        json        TEXT NOT NULL,
        description TEXT NOT NULL
    ) WITHOUT ROWID
    ;
INSERT INTO "workloads" VALUES('42ae0d689dcb09ad','anchor','{"op":"conv2d"}','conv2d 64x64');
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX workloads_anchor ON workloads (anchor_key);
CREATE INDEX trials_best ON trials (workload_key, target_key, seconds, config_key) WHERE verified = 1
    ;
COMMIT;
