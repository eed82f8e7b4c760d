// The scenarios of crates/sim/examples/line.rs and bulk.rs in ns-3: what its users would write, with
// the same rates, delays, queues and packet sizes.
//
//   world line MILLISECONDS [bare]    four nodes, 1 Gbit/s and 1 ms a link, 1000-byte packets at 500 Mbit/s
//   world bulk MILLISECONDS [bare]    one TCP bulk flow over a bottleneck of 100 Mbit/s and 10 ms
//
// Prints one line of JSON: what was carried, and the processor time of the run alone, without what
// building takes. `bare` takes away the queue disciplines that ns-3's helpers put above the devices.
// `count` counts the packets of `bulk`, which costs time, so that it is done in a run of its own.
//
// Neither computes checksums or writes traces.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

using namespace ns3;

namespace {

const uint16_t kPort = 9;
bool g_bare = false;

// Joins two nodes; gives the address of the second.
Ipv4Address Join(NodeContainer nodes, const char* rate, const char* delay, const char* net,
                 uint32_t limit) {
  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", StringValue(rate));
  link.SetDeviceAttribute("Mtu", UintegerValue(1500));
  link.SetChannelAttribute("Delay", StringValue(delay));
  link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize",
                QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, limit)));
  NetDeviceContainer devices = link.Install(nodes);
  Ipv4AddressHelper addresses;
  addresses.SetBase(net, "255.255.255.0");
  Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
  if (g_bare) {
    TrafficControlHelper().Uninstall(devices);
  }
  return interfaces.GetAddress(1);
}

// Runs until the end; gives the seconds of processor time it took.
double Run(Time end) {
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();
  Simulator::Stop(end);
  const std::clock_t begun = std::clock();
  Simulator::Run();
  return double(std::clock() - begun) / CLOCKS_PER_SEC;
}

Ptr<PacketSink> Listen(Ptr<Node> node, const char* factory, Time end) {
  PacketSinkHelper helper(factory, InetSocketAddress(Ipv4Address::GetAny(), kPort));
  ApplicationContainer apps = helper.Install(node);
  apps.Start(Seconds(0));
  apps.Stop(end);
  return DynamicCast<PacketSink>(apps.Get(0));
}

void Line(Time end) {
  const uint32_t size = 1000, headers = 28;
  NodeContainer nodes;
  nodes.Create(4);
  InternetStackHelper().Install(nodes);
  Join(NodeContainer(nodes.Get(0), nodes.Get(1)), "1Gbps", "1ms", "10.0.1.0", 1000);
  Join(NodeContainer(nodes.Get(1), nodes.Get(2)), "1Gbps", "1ms", "10.0.2.0", 1000);
  Ipv4Address far =
      Join(NodeContainer(nodes.Get(2), nodes.Get(3)), "1Gbps", "1ms", "10.0.3.0", 1000);
  Ptr<PacketSink> sink = Listen(nodes.Get(3), "ns3::UdpSocketFactory", end);
  // The rate is that of the data.
  const uint64_t rate = 500000000ull * (size - headers) / size;
  OnOffHelper source("ns3::UdpSocketFactory", InetSocketAddress(far, kPort));
  source.SetConstantRate(DataRate(rate), size - headers);
  ApplicationContainer apps = source.Install(nodes.Get(0));
  apps.Start(Seconds(0));
  apps.Stop(end);
  const double seconds = Run(end);
  const uint64_t packets = sink->GetTotalRx() / (size - headers);
  std::cout << "{\"packets\": " << packets << ", \"hops\": " << 3 * packets
            << ", \"events\": " << Simulator::GetEventCount() << ", \"cpu_seconds\": " << seconds
            << "}" << std::endl;
}

uint64_t g_sent = 0;

void Sent(Ptr<const Packet>, Ptr<Ipv4>, uint32_t) { ++g_sent; }

void Bulk(Time end, bool count) {
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 20));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 20));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpCubic"));
  NodeContainer nodes;
  nodes.Create(3);
  InternetStackHelper().Install(nodes);
  Join(NodeContainer(nodes.Get(0), nodes.Get(1)), "1Gbps", "0ms", "10.0.1.0", 1000);
  Ipv4Address far =
      Join(NodeContainer(nodes.Get(1), nodes.Get(2)), "100Mbps", "10ms", "10.0.2.0", 100);
  Ptr<PacketSink> sink = Listen(nodes.Get(2), "ns3::TcpSocketFactory", end);
  BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(far, kPort));
  source.SetAttribute("MaxBytes", UintegerValue(0));
  source.SetAttribute("SendSize", UintegerValue(16384));
  ApplicationContainer apps = source.Install(nodes.Get(0));
  apps.Start(Seconds(0));
  apps.Stop(end);
  if (count) {
    // What the two ends send, data and acknowledgments; what the router passes on does not count.
    for (uint32_t end_node : {0u, 2u}) {
      nodes.Get(end_node)->GetObject<Ipv4L3Protocol>()->TraceConnectWithoutContext(
          "Tx", MakeCallback(&Sent));
    }
  }
  const double seconds = Run(end);
  std::cout << "{\"packets\": " << g_sent << ", \"bytes\": " << sink->GetTotalRx()
            << ", \"events\": " << Simulator::GetEventCount() << ", \"cpu_seconds\": " << seconds
            << "}" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: world line|bulk MILLISECONDS [bare] [count]" << std::endl;
    return 2;
  }
  bool count = false;
  for (int i = 3; i < argc; ++i) {
    g_bare |= std::string(argv[i]) == "bare";
    count |= std::string(argv[i]) == "count";
  }
  const std::string what = argv[1];
  const Time end = MilliSeconds(std::atoll(argv[2]));
  if (what == "line") {
    Line(end);
  } else if (what == "bulk") {
    Bulk(end, count);
  } else {
    std::cerr << "expected line or bulk, got " << what << std::endl;
    return 2;
  }
  Simulator::Destroy();
  return 0;
}
