"""Graphs of routers: those that mesh routers are compared in, and any that a file describes."""

import json
import math
import random
from collections import deque

# The plane in which routers move, and how many links they have there.
SIDE, DISK_NODES, DISK_LINKS = 1000.0, 50, 150
# A city's network: routers, and links per router.
CITY_NODES, CITY_LINKS = 279, 1.25
NAMES = ("grid", "tree", "line", "ring", "disk", "city")


class Graph:
    """Nodes by name and the links between them, undirected."""

    def __init__(self, nodes, links, positions=None):
        self.nodes = [str(node) for node in nodes]
        self.links = {tuple(sorted((str(a), str(b)))) for a, b in links if str(a) != str(b)}
        self.positions = positions
        self._distances = {}

    def neighbours(self):
        """A list of neighbours for each node."""
        found = {node: [] for node in self.nodes}
        for a, b in sorted(self.links):
            found[a].append(b)
            found[b].append(a)
        return found

    def hops_from(self, start):
        """Length of the shortest path from `start` to each node that can be reached."""
        if start not in self._distances:
            neighbours = self._distances.setdefault(None, self.neighbours())
            hops, queue = {start: 0}, deque([start])
            while queue:
                node = queue.popleft()
                for other in neighbours[node]:
                    if other not in hops:
                        hops[other] = hops[node] + 1
                        queue.append(other)
            self._distances[start] = hops
        return self._distances[start]

    def pairs(self, rng, count, min_hops=2):
        """Random pairs of nodes between which a path of at least `min_hops` links exists."""
        if not any(hops >= min_hops for node in self.nodes for hops in self.hops_from(node).values()):
            raise ValueError(f"no two nodes are {min_hops} hops apart")
        found = []
        while len(found) < count:
            a, b = rng.sample(self.nodes, 2)
            if self.hops_from(a).get(b, 0) >= min_hops:
                found.append((a, b))
        return found

    def moved(self, rng, distance):
        """The same nodes, each `distance` further in a random direction, and as many links as before."""
        positions = []
        for x, y in self.positions:
            angle = rng.uniform(0, 2 * math.pi)
            positions.append((x + distance * math.cos(angle), y + distance * math.sin(angle)))
        return Graph(self.nodes, nearest(self.nodes, positions, len(self.links)), positions)

    def about(self):
        """Its size and shape, for the report."""
        reached = [self.hops_from(node) for node in self.nodes]
        degrees = [len(others) for others in self.neighbours().values()]
        connected = "connected" if all(len(hops) == len(self.nodes) for hops in reached) else "not connected"
        return (f"{len(self.nodes)} nodes, {len(self.links)} links, degree {sum(degrees) / len(degrees):.2f} mean "
                f"{max(degrees)} max, diameter {max(max(hops.values()) for hops in reached)}, {connected}")


def nearest(nodes, positions, count):
    """The `count` pairs of nodes with the least distance: the links of a unit disk whose range is chosen so."""
    pairs = sorted((math.dist(positions[i], positions[j]), nodes[i], nodes[j])
                   for i in range(len(nodes)) for j in range(i))
    return [(a, b) for _, a, b in pairs[:count]]


def line(count):
    """Each node is linked with the next."""
    return Graph(range(count), [(i, i + 1) for i in range(count - 1)])


def ring(count):
    """A line whose ends are linked."""
    return Graph(range(count), [(i, (i + 1) % count) for i in range(count)])


def grid(side):
    """Each node is linked with those beside, above and below it."""
    right = [(side * y + x, side * y + x + 1) for y in range(side) for x in range(side - 1)]
    down = [(side * y + x, side * y + x + side) for y in range(side - 1) for x in range(side)]
    return Graph(range(side * side), right + down)


def tree(rng, count):
    """Each node is linked with a random one of those before it."""
    return Graph(range(count), [(i, rng.randrange(i)) for i in range(1, count)])


def disk(rng, count=DISK_NODES, links=DISK_LINKS):
    """Nodes at random in the plane; the nearest pairs are linked."""
    nodes = [str(i) for i in range(count)]
    positions = [(rng.uniform(0, SIDE), rng.uniform(0, SIDE)) for _ in nodes]
    return Graph(nodes, nearest(nodes, positions, links), positions)


def city(rng, count=CITY_NODES):
    """Roofs of a city around several centres. Each new one is linked with the nearest that is there already, and then
    the nearest pairs beside those links, so that a node has two or three links and many quarters a single way out."""
    centres = [(rng.uniform(0, SIDE), rng.uniform(0, SIDE)) for _ in range(max(1, count // 20))]
    nodes = [str(i) for i in range(count)]
    positions = [tuple(rng.gauss(middle, SIDE / 20) for middle in rng.choice(centres)) for _ in nodes]
    links = [(nodes[i], nodes[min(range(i), key=lambda j: math.dist(positions[i], positions[j]))])
             for i in range(1, count)]
    known = {frozenset(link) for link in links}
    spare = (pair for pair in nearest(nodes, positions, None) if frozenset(pair) not in known)
    links += [next(spare) for _ in range(int(CITY_LINKS * count) - len(links))]
    return Graph(nodes, links, positions)


def read(path):
    """A graph in the JSON form of meshnet-lab: `links` with `source` and `target`, and `nodes` with `id`."""
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    links = [(str(link["source"]), str(link["target"])) for link in found["links"]]
    named = [str(node["id"]) for node in found.get("nodes", [])]
    nodes = sorted({*named, *(node for link in links for node in link)})
    # Names of devices are made of them.
    if any(len(node) > 6 or not node.isalnum() for node in nodes):
        nodes_of = {node: f"{index}" for index, node in enumerate(nodes)}
        nodes, links = list(nodes_of.values()), [(nodes_of[a], nodes_of[b]) for a, b in links]
    return Graph(nodes, links)


def named(name, seed, nodes=None):
    """A graph by its name, with `nodes` nodes instead of the usual number."""
    rng = random.Random(seed)
    if name == "grid":
        return grid(math.isqrt(nodes) if nodes else 7)
    if name == "tree":
        return tree(rng, nodes or 50)
    if name == "line":
        return line(nodes or 50)
    if name == "ring":
        return ring(nodes or 50)
    if name == "disk":
        return disk(rng, nodes or DISK_NODES, 3 * (nodes or DISK_NODES))
    return city(rng, nodes or CITY_NODES)
