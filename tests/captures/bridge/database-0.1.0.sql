BEGIN TRANSACTION;
CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY, incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE,
  channel TEXT NOT NULL, role TEXT NOT NULL, root_channel TEXT NOT NULL DEFAULT '',
  root_ts TEXT NOT NULL DEFAULT '', posted_seq INTEGER NOT NULL DEFAULT 0,
  shown_version INTEGER NOT NULL DEFAULT 0, digest_seq INTEGER NOT NULL DEFAULT 0,
  plainness INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
  next_try REAL NOT NULL DEFAULT 0, edited_at REAL NOT NULL DEFAULT 0, pending_since REAL,
  inflight TEXT NOT NULL DEFAULT '', inflight_kind TEXT NOT NULL DEFAULT '',
  inflight_seq INTEGER NOT NULL DEFAULT 0, inflight_at REAL NOT NULL DEFAULT 0,
  UNIQUE (incident, channel, role));
INSERT INTO "deliveries" VALUES(1,1,'C0PAGES','main','C0PAGES','1700000000.000001',2,2,0,0,0,0.0,1700000062.32,NULL,'','',2,1700000062.11);
INSERT INTO "deliveries" VALUES(2,2,'C0PAGES','main','C0PAGES','1700000001.000002',3,2,0,0,0,0.0,1700000061.07,NULL,'','',3,1700000061.06);
INSERT INTO "deliveries" VALUES(3,3,'C0PAGES','main','','',0,0,0,0,0,0.0,0.0,1700000062.33,'','',0,0.0);
CREATE TABLE events (
  incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE, seq INTEGER NOT NULL, at REAL NOT NULL,
  document TEXT NOT NULL, PRIMARY KEY (incident, seq)) WITHOUT ROWID;
INSERT INTO "events" VALUES(1,1,1700000000.0,'{"at":1700000000.0,"kind":"fired","count":1,"subjects":["m"],"alerts":["open"],"summaries":["Model m failed to load"],"by":"","text":""}');
INSERT INTO "events" VALUES(1,2,1700000001.06,'{"at":1700000001.06,"kind":"acknowledged","count":0,"subjects":[],"alerts":[],"summaries":[],"by":"U0ANA","text":""}');
INSERT INTO "events" VALUES(2,1,1700000000.0,'{"at":1700000000.0,"kind":"fired","count":1,"subjects":["m"],"alerts":["ended"],"summaries":["Model m failed to load"],"by":"","text":""}');
INSERT INTO "events" VALUES(2,2,1700000061.06,'{"at":1700000061.06,"kind":"resolved","count":1,"subjects":["m"],"alerts":["ended"],"summaries":["Model m failed to load"],"by":"","text":""}');
INSERT INTO "events" VALUES(2,3,1700000061.06,'{"at":1700000061.06,"kind":"closed","count":0,"subjects":[],"alerts":[],"summaries":[],"by":"","text":""}');
INSERT INTO "events" VALUES(3,1,1700000062.33,'{"at":1700000062.33,"kind":"fired","count":1,"subjects":["m"],"alerts":["waiting"],"summaries":["Model m failed to load"],"by":"","text":""}');
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "facts" VALUES('heartbeat','1700000062.33');
CREATE TABLE "held" (key TEXT PRIMARY KEY, due REAL NOT NULL, document TEXT NOT NULL);
INSERT INTO "held" VALUES('page|ended',1700000122.33,'{"key":"page|ended","receiver":"page","all_resolved":false,"alerts":{"m":{"labels":{"alertname":"ended","model":"m","severity":"critical"},"annotations":{"summary":"Model m failed to load"},"starts_at":1700000000.0,"ends_at":null,"generator_url":"","source":"am-1 http://alertmanager.example:9093"}},"group_labels":{"alertname":"ended"},"external_url":"http://alertmanager.example:9093","truncated":0,"source":"am-1 http://alertmanager.example:9093"}');
CREATE TABLE incidents (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, document TEXT NOT NULL,
  severity INTEGER NOT NULL, opened_at REAL NOT NULL, closed_at REAL,
  last_seq INTEGER NOT NULL, version INTEGER NOT NULL, charted INTEGER NOT NULL DEFAULT 0);
INSERT INTO "incidents" VALUES(1,'cc7166a3','page|open','{"name":"cc7166a3","key":"page|open","receiver":"page","group_labels":{"alertname":"open"},"external_url":"http://alertmanager.example:9093","opened_at":1700000000.0,"closed_at":null,"members":{"m":{"labels":{"alertname":"open","model":"m","severity":"critical"},"annotations":{"summary":"Model m failed to load"},"starts_at":1700000000.0,"ends_at":null,"generator_url":"","source":"am http://alertmanager.example:9093"}},"recurrence":0,"acknowledged":{"by":"U0ANA","at":1700000001.06},"silence":{"id":"s1","by":"U0ANA","until":1700003601.06,"until_resolved":false,"matchers":[{"name":"alertname","values":["open"]},{"name":"severity","values":["critical"]},{"name":"model","values":["m"]}],"alertmanager":"http://am:9093"},"escalated_at":null,"released_at":null,"peak":"critical","evidence":{"at":1700000001.06,"reasons":{"m v1":"no weights"},"facts":[["GPU","busy"]]}}',0,1700000000.0,NULL,2,2,0);
INSERT INTO "incidents" VALUES(2,'242aea93','page|ended','{"name":"242aea93","key":"page|ended","receiver":"page","group_labels":{"alertname":"ended"},"external_url":"http://alertmanager.example:9093","opened_at":1700000000.0,"closed_at":1700000061.06,"members":{"m":{"labels":{"alertname":"ended","model":"m","severity":"critical"},"annotations":{"summary":"Model m failed to load"},"starts_at":1700000000.0,"ends_at":1700000061.06,"generator_url":"","source":"am http://alertmanager.example:9093"}},"recurrence":0,"acknowledged":null,"silence":null,"escalated_at":null,"released_at":null,"peak":"critical","evidence":null}',0,1700000000.0,1700000061.06,3,2,0);
INSERT INTO "incidents" VALUES(3,'c974c90f','page|waiting','{"name":"c974c90f","key":"page|waiting","receiver":"page","group_labels":{"alertname":"waiting"},"external_url":"http://alertmanager.example:9093","opened_at":1700000062.33,"closed_at":null,"members":{"m":{"labels":{"alertname":"waiting","model":"m","severity":"critical"},"annotations":{"summary":"Model m failed to load"},"starts_at":1700000062.33,"ends_at":null,"generator_url":"","source":"am http://alertmanager.example:9093"}},"recurrence":0,"acknowledged":null,"silence":null,"escalated_at":null,"released_at":null,"peak":"critical","evidence":null}',0,1700000062.33,NULL,1,1,0);
CREATE TABLE pressed (id TEXT PRIMARY KEY, at REAL NOT NULL);
INSERT INTO "pressed" VALUES('p1',1700000062.33);
CREATE INDEX incidents_by_key ON incidents (key, id);
CREATE INDEX incidents_open ON incidents (closed_at);
CREATE INDEX deliveries_by_channel ON deliveries (channel);
COMMIT;
PRAGMA user_version = 2;
