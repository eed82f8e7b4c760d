-- The users of all servers that share this database, and the order of changes of them.
--
-- A change gets its number under a lock that is held until its transaction ends. So changes become visible in the order of
-- their numbers, and a reader who has seen one has seen all before it. Rows may be changed by plain SQL, too.

CREATE TABLE ringway.users (
    domain text COLLATE "C" NOT NULL
        CHECK (octet_length(domain) <= 255 AND domain ~ '^[!-~]+$' AND domain !~ '["\\@A-Z]'),
    username text COLLATE "C" NOT NULL
        CHECK (octet_length(username) <= 128 AND username ~ '^[-A-Za-z0-9_.!~*''()&=+$,?/]+$'),
    -- H(username:domain:password) of RFC 7616 section 3.4.2, in hexadecimal. One at least; NULL is not known.
    ha1_md5 text CHECK (ha1_md5 ~ '^[0-9a-f]{32}$'),
    ha1_sha256 text CHECK (ha1_sha256 ~ '^[0-9a-f]{64}$'),
    ha1_sha512t256 text CHECK (ha1_sha512t256 ~ '^[0-9a-f]{64}$'),
    password_set timestamptz NOT NULL DEFAULT now() CHECK (isfinite(password_set)),
    -- Set by the trigger.
    change bigint NOT NULL UNIQUE,
    PRIMARY KEY (domain, username),
    CHECK (num_nonnulls(ha1_md5, ha1_sha256, ha1_sha512t256) > 0)
);

-- Names of users that were removed, for those who read changes only.
CREATE TABLE ringway.removed (
    domain text COLLATE "C" NOT NULL,
    username text COLLATE "C" NOT NULL,
    change bigint NOT NULL UNIQUE,
    removed timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, username)
);
CREATE INDEX ON ringway.removed (removed);

CREATE SEQUENCE ringway.change;

-- Before rows are locked, so that two writers cannot wait for each other. Others read meanwhile.
CREATE FUNCTION ringway.begin_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE ringway.removed IN SHARE ROW EXCLUSIVE MODE;
    RETURN NULL;
END $$;

CREATE FUNCTION ringway.number_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.change := nextval('ringway.change');
    RETURN NEW;
END $$;

-- The rows of a statement at once: an import has many.
CREATE FUNCTION ringway.end_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM ringway.removed AS removed USING written
        WHERE removed.domain = written.domain AND removed.username = written.username;
    PERFORM pg_notify('ringway_users', '');
    RETURN NULL;
END $$;

-- A user with a new name is another one.
CREATE FUNCTION ringway.end_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO ringway.removed (domain, username, change)
        SELECT domain, username, nextval('ringway.change') FROM
            (SELECT domain, username FROM earlier EXCEPT SELECT domain, username FROM written) AS renamed
        ON CONFLICT (domain, username) DO UPDATE SET change = EXCLUDED.change, removed = now();
    DELETE FROM ringway.removed AS removed USING written
        WHERE removed.domain = written.domain AND removed.username = written.username;
    PERFORM pg_notify('ringway_users', '');
    RETURN NULL;
END $$;

-- A server that has not read for an hour reads everything again, so that a name is not needed for long.
CREATE FUNCTION ringway.end_delete() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO ringway.removed (domain, username, change)
        SELECT domain, username, nextval('ringway.change') FROM earlier
        ON CONFLICT (domain, username) DO UPDATE SET change = EXCLUDED.change, removed = now();
    DELETE FROM ringway.removed WHERE removed < now() - interval '30 days';
    PERFORM pg_notify('ringway_users', '');
    RETURN NULL;
END $$;

CREATE FUNCTION ringway.refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ringway.users: expected DELETE, which servers learn of, got TRUNCATE';
END $$;

CREATE TRIGGER begin_change BEFORE INSERT OR UPDATE OR DELETE ON ringway.users
    FOR EACH STATEMENT EXECUTE FUNCTION ringway.begin_change();
CREATE TRIGGER number_change BEFORE INSERT OR UPDATE ON ringway.users
    FOR EACH ROW EXECUTE FUNCTION ringway.number_change();
CREATE TRIGGER end_insert AFTER INSERT ON ringway.users REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION ringway.end_insert();
CREATE TRIGGER end_update AFTER UPDATE ON ringway.users REFERENCING OLD TABLE AS earlier NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION ringway.end_update();
CREATE TRIGGER end_delete AFTER DELETE ON ringway.users REFERENCING OLD TABLE AS earlier
    FOR EACH STATEMENT EXECUTE FUNCTION ringway.end_delete();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON ringway.users
    FOR EACH STATEMENT EXECUTE FUNCTION ringway.refuse_truncate();

REVOKE ALL ON FUNCTION ringway.begin_change(), ringway.number_change(), ringway.end_insert(),
    ringway.end_update(), ringway.end_delete(), ringway.refuse_truncate() FROM PUBLIC;
