PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE subscriber (id INTEGER PRIMARY KEY NOT NULL, username VARCHAR(64) DEFAULT '' NOT NULL, domain VARCHAR(64), password VARCHAR(64), ha1 VARCHAR(128), ha1b VARCHAR(128));
INSERT INTO subscriber VALUES(1,'101','example.org','a''b\c','','');
INSERT INTO subscriber VALUES(2,'102','example.org',replace('x\ny','\n',char(10)),'','');
INSERT INTO subscriber VALUES(3,'103','example.org',NULL,'5EBE2294ECD0E0F08EAB7690D2A6EE69','');
COMMIT;
