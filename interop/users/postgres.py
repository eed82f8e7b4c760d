"""Debian's PostgreSQL as the database of users, as its own user, on a port of its own."""

import os
import pwd
import shutil
import signal
import tempfile
from pathlib import Path

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
HOST = "127.0.0.1"
# How roles prove who they are: the superuser by the socket of its own folder, others by their passwords.
HBA = "local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


class Postgres:
    """A server with one role and one database, both `ringway`."""

    password = "let-me-in"

    def __init__(self, context, encoding="UTF8", options=(), owner="ringway"):
        self.context, self.port = context, context.ports.take()
        # Its user has no way into the folders of the tree.
        self.folder = Path(tempfile.mkdtemp(prefix="rw-pg-"))
        context.after(lambda: shutil.rmtree(self.folder, ignore_errors=True))
        self.as_user = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            # From a folder that this user may enter, or psql complains.
            self.as_user = ["env", "--chdir=/", "setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups",
                            "--"]
        self.data = self.folder / "data"
        self.run([PROGRAMS / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", encoding,
                  "--locale=C"], seconds=60)
        (self.data / "pg_hba.conf").write_text(HBA)
        self.options = ["-c", "fsync=off", "-c", "max_connections=40", *options]
        self.process = None
        self.start()
        self.sql(f"CREATE ROLE ringway LOGIN PASSWORD '{self.password}'", database="postgres")
        self.sql(f"CREATE DATABASE ringway OWNER {owner} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' "
                 "LC_CTYPE 'C'", database="postgres")

    def run(self, argv, seconds=30, stdin=None, fails=False):
        """Runs a program as the server's user; what it printed."""
        status, output = self.context.run("postgres-tools", [*self.as_user, *argv], seconds=seconds, stdin=stdin)
        self.context.expect((status != 0) == fails, f"{argv}: {status}: {output}")
        return output

    def start(self):
        """Starts it and waits until it answers."""
        command = [PROGRAMS / "postgres", "-D", self.data, "-h", HOST, "-k", self.folder, "-p", self.port,
                   *self.options]
        self.process = self.context.start("postgres", [*self.as_user, *command], cwd=self.folder)
        self.context.expect(self.process.wait_output("ready to accept connections", 30), self.process.output())

    def sql(self, text, database="ringway", fails=False):
        """What psql prints for statements of the superuser."""
        words = ["psql", "-h", self.folder, "-p", self.port, "-U", "postgres", "-d", database, "-X", "-q", "-A", "-t",
                 "-v", "ON_ERROR_STOP=1", "-f", "-"]
        return self.run(words, stdin=text, fails=fails).strip()

    def uri(self, user="ringway", password=None, options=""):
        """The source of users."""
        return f"postgresql://{user}:{password or self.password}@{HOST}:{self.port}/ringway{options}"

    def pids(self):
        """The server and the processes of its connections."""
        main = self.process.pid
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]

    def pause(self):
        """It does nothing more, and its connections stay."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def go_on(self):
        """It goes on."""
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)

    def stop(self):
        """It ends at once, with its connections."""
        self.process.signal(signal.SIGQUIT)
        self.process.wait(10)
