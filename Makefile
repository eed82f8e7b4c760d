# The two commands: `make run` starts a server, `make test` checks everything.

.PHONY: run release small package test package-test bench soak fuzz fmt

# Builds and starts the server on its embedded store; it prints what to type into a phone. The laboratory is left out,
# so that the first phone registers sooner; `make release` builds the whole program.
# More flags: make run ARGS="--domain example.org --listen udp://0.0.0.0:5070"
run:
	@scripts/install-test-tools --build
	@cargo run --profile serve --locked -p ringway --no-default-features --features server -- serve $(ARGS)

# The whole program, laboratory included, optimised over all its crates and stripped, with its symbols, the library of
# `ringway with`, man pages and completions beside it: target/package.
release:
	@scripts/install-test-tools --build
	@scripts/release

# The router of the mesh alone, for small machines: target/package/ringway-mesh. Fails if it has more than 4 MB.
small:
	@scripts/install-test-tools --build
	@scripts/small

# The same as `make release`, and a Debian package of it. Installs cargo-deb where it is missing.
package:
	@scripts/install-test-tools --build
	@scripts/install-test-tools --package
	@scripts/release --deb

# Installs that package in a fresh Debian 12 which boots systemd in a container, and uses it there. Takes root and the
# network; PROFILE=quick checks the packaging alone.
package-test:
	@scripts/install-test-tools
	@scripts/install-test-tools --package
	@scripts/test-package

# Formatting, lints, house rules, unit and property tests, then the checks against programs others wrote.
# Only some of them: make test ONLY="unit interop", make test ONLY=interop CASES="sipp/busy-udp"
test:
	@scripts/test $(ONLY)

# Ringway, Kamailio and the datagram floor side by side in one run; then SCTP beside usrsctp and TCP; then the
# virtual world and ns-3; then a TCP flow through mesh routers, and calls across them; then packets through an emulated
# link; then the API of transport services and plain sockets; then calls between two nodes of a cluster. Only one of them:
# make bench ONLY=serve, ONLY=sctp, ONLY=world, ONLY=mesh, ONLY=emulate, ONLY=services or ONLY=cluster
bench:
	@scripts/install-test-tools --bench
	@[ "$(or $(ONLY),serve)" != serve ] || interop/bench/run
	@[ "$(or $(ONLY),sctp)" != sctp ] || interop/bench/sctp
	@[ "$(or $(ONLY),world)" != world ] || interop/bench/world
	@[ "$(or $(ONLY),mesh)" != mesh ] || interop/bench/mesh
	@[ "$(or $(ONLY),mesh)" != mesh ] || interop/bench/onesip
	@[ "$(or $(ONLY),emulate)" != emulate ] || interop/bench/emulate
	@[ "$(or $(ONLY),services)" != services ] || interop/bench/services
	@[ "$(or $(ONLY),services)" != services ] || interop/bench/with
	@[ "$(or $(ONLY),cluster)" != cluster ] || interop/bench/cluster

# 200,000 calls: tables empty and memory back afterwards. Then pairs of SCTP hosts whose settings, wires and
# users 20,000 seeds draw (others: make soak RANDOM_FROM=20000), what must not cost more where there is more,
# and all tests, whose properties draw anew in each of five rounds (more: make soak ROUNDS=20). Before them, meshes of
# routers through the faults of 2,000 seeds (others: make soak MESH_FAULTS=2000..9000; alone: make soak ONLY=mesh), and
# routers whose servers are one through those of 10,000 (SIP_FAULTS=0..10000; alone: make soak ONLY=onesip); and three
# nodes of a cluster through faults, with 20,000 phones, baresip, linphone and SIPp among them (alone: make soak
# ONLY=cluster).
soak:
	@[ "$(or $(ONLY),mesh)" != mesh ] || \
		MESH_FAULTS=$(or $(MESH_FAULTS),0..2000) cargo test --release --locked -p ringway-sim --test mesh_faults
	@[ "$(or $(ONLY),onesip)" != onesip ] || \
		SIP_FAULTS=$(or $(SIP_FAULTS),0..10000) cargo test --release --locked -p ringway-lab --test onesip_faults
	@[ "$(or $(ONLY),cluster)" != cluster ] || { scripts/install-test-tools && \
		cargo build --profile quick --locked --quiet --no-default-features --features ringway/server,ringway/cluster \
			-p ringway && interop/cluster/soak; }
	@[ -n "$(ONLY)" ] || $(MAKE) --no-print-directory soak-all

.PHONY: soak-all
soak-all:
	@scripts/install-test-tools
	@interop/bench/drain
	@RANDOM_FROM=$(or $(RANDOM_FROM),0) RANDOM_SEEDS=20000 \
		cargo test --locked -p ringway-sctp --test random -- --nocapture
	@cargo test --locked -p ringway-sctp --test cost
	@cargo build --locked --quiet -p ringway-with-preload -p ringway-c
	@for round in $$(seq $(or $(ROUNDS),5)); do \
		seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
		echo "the same again: PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=1000 cargo test --workspace --locked"; \
		PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=1000 cargo test --workspace --locked --quiet || exit 1; \
	done

# Every fuzz target for ten minutes each; shorter: make fuzz TIME=60
fuzz:
	@scripts/fuzz $(TIME)

fmt:
	cargo fmt --all
