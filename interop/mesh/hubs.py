"""Links by the kernel, as meshnet-lab's published scripts make them: a bridge per router that acts as a hub, and a
token bucket filter at both ends of each link. The filter limits the rate and bounds the queue; it delays nothing."""

from spaces import UPLINK, run

FILTER = "tbf rate 100mbit burst 8192 latency 1ms"
# The namespace with the bridges.
SWITCHES = "hubs"


class Hubs:
    """The devices of one network."""

    # Namespaces beside those of the routers.
    further = (SWITCHES,)

    def __init__(self, spaces, graph):
        self.spaces, self.links = spaces, set()
        self.space = spaces.names[SWITCHES]
        # Bridges are no hosts: the kernel must send nothing of its own over them.
        spaces.write(SWITCHES, {"net/ipv6/conf/all/disable_ipv6": 1, "net/ipv6/conf/default/disable_ipv6": 1})
        lines = []
        for node in graph.nodes:
            lines += [
                f"link add br-{node} type bridge ageing_time 0 forward_delay 0 stp_state 0 mcast_snooping 0",
                f"link add dl-{node} type veth peer name {UPLINK} netns {spaces.names[node]}",
                f"link set dl-{node} master br-{node} up",
                f"link set br-{node} up",
            ]
        spaces.ip(SWITCHES, *lines)
        self.change(graph)

    def change(self, graph):
        """Makes the links those of `graph`."""
        gone, new = sorted(self.links - graph.links), sorted(graph.links - self.links)
        lines, filters = [f"link del v{a}-{b}" for a, b in gone], []
        for a, b in new:
            # A port that is isolated reaches the router's own port only.
            lines += [f"link add v{a}-{b} type veth peer name v{b}-{a}"]
            for end, other in ((a, b), (b, a)):
                lines += [f"link set v{end}-{other} master br-{end}",
                          f"link set v{end}-{other} type bridge_slave isolated on",
                          f"link set v{end}-{other} up"]
                filters.append(f"qdisc replace dev v{end}-{other} root {FILTER}")
        self.spaces.ip(SWITCHES, *lines)
        run(["tc", "-n", self.space, "-batch", "-"], filters)
        self.links = set(graph.links)

    def close(self):
        """Nothing is left that the namespaces do not take with them."""
