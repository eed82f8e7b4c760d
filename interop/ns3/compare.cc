// One TCP bulk flow over one bottleneck in ns-3, to hold the laboratory's results against: with random
// loss, and with PIE at the bottleneck. interop/ns3/compare runs both simulators.
//
//   compare loss SECONDS RUN PERCENT MILLISECONDS  NewReno over 100 Mbit/s and so many ms one way
//   compare pie  SECONDS RUN FLOWS MILLISECONDS    NewReno flows over 10 Mbit/s, PIE, 200 packets
//   ... Name=Value                                 ns-3's attributes, set before anything is built
//
// Prints one line of JSON: bytes the receivers got, and of PIE the mean and median time in the queue.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

const uint16_t kPort = 9;
std::vector<double> g_waited;
uint64_t g_reductions = 0;
uint64_t g_timeouts = 0;

void Sojourn(Time waited) { g_waited.push_back(waited.GetSeconds()); }

Time g_exit = Seconds(-1);
uint64_t g_grown_at_exit = 0;

void State(TcpSocketState::TcpCongState_t before, TcpSocketState::TcpCongState_t now) {
  if (before == TcpSocketState::CA_RECOVERY && now == TcpSocketState::CA_OPEN) {
    g_exit = Simulator::Now();
  }
  g_reductions += now == TcpSocketState::CA_RECOVERY;
  g_timeouts += now == TcpSocketState::CA_LOSS;
}

// The acknowledgment that ends a recovery sets the window to ssthresh; whatever it adds is growth.
void Window(uint32_t before, uint32_t now) {
  g_grown_at_exit += Simulator::Now() == g_exit && now > before;
}

void Watch(Ptr<BulkSendApplication> sender) {
  sender->GetSocket()->TraceConnectWithoutContext("CongestionWindow", MakeCallback(&Window));
  sender->GetSocket()->TraceConnectWithoutContext("CongState", MakeCallback(&State));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::cerr << "usage: compare loss|pie SECONDS RUN PERCENT|FLOWS MILLISECONDS [Name=Value]...\n";
    return 2;
  }
  const std::string what = argv[1];
  const double seconds = std::atof(argv[2]);
  RngSeedManager::SetRun(std::atoi(argv[3]));
  const double number = std::atof(argv[4]);
  const std::string delay = std::string(argv[5]) + "ms";
  // As the laboratory's scenario has it: 1500-byte packets, large buffers, timeouts of 200 ms.
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::TcpNewReno")));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 22));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 22));
  Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
  for (int i = 6; i < argc; i++) {
    const std::string pair = argv[i];
    const auto equals = pair.find('=');
    Config::SetDefault(pair.substr(0, equals), StringValue(pair.substr(equals + 1)));
  }
  const bool pie = what == "pie";
  const int flows = pie ? int(number) : 1;

  NodeContainer nodes;
  nodes.Create(2);
  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", StringValue(pie ? "10Mbps" : "100Mbps"));
  link.SetChannelAttribute("Delay", StringValue(delay));
  // With a queue discipline the device holds one packet, so that all wait above it.
  link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize",
                QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, pie ? 1 : 10000)));
  NetDeviceContainer devices = link.Install(nodes);
  InternetStackHelper().Install(nodes);
  QueueDiscContainer discs;
  if (pie) {
    TrafficControlHelper control;
    control.SetRootQueueDisc("ns3::PieQueueDisc", "MaxSize", StringValue("200p"));
    discs = control.Install(devices.Get(0));
    discs.Get(0)->TraceConnectWithoutContext("SojournTime", MakeCallback(&Sojourn));
  }
  Ipv4AddressHelper addresses;
  addresses.SetBase("10.0.0.0", "255.255.255.0");
  Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
  TrafficControlHelper none;
  pie ? none.Uninstall(devices.Get(1)) : none.Uninstall(devices);
  if (!pie && number > 0) {
    Ptr<RateErrorModel> loss = CreateObject<RateErrorModel>();
    loss->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    loss->SetRate(number / 100);
    devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(loss));
  }
  std::vector<Ptr<PacketSink>> sinks;
  for (int i = 0; i < flows; i++) {
    const InetSocketAddress to(interfaces.GetAddress(1), kPort + i);
    BulkSendHelper source("ns3::TcpSocketFactory", to);
    source.SetAttribute("MaxBytes", UintegerValue(0));
    source.SetAttribute("SendSize", UintegerValue(1448));
    ApplicationContainer sender = source.Install(nodes.Get(0));
    sender.Start(MilliSeconds(10 * i));
    Simulator::Schedule(MilliSeconds(10 * i + 1), &Watch, DynamicCast<BulkSendApplication>(sender.Get(0)));
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort + i));
    ApplicationContainer receiver = sink.Install(nodes.Get(1));
    receiver.Start(Seconds(0));
    sinks.push_back(DynamicCast<PacketSink>(receiver.Get(0)));
  }
  Simulator::Stop(Seconds(seconds));
  Simulator::Run();
  uint64_t bytes = 0;
  for (const auto& sink : sinks) {
    bytes += sink->GetTotalRx();
  }
  std::cout << "{\"bytes\": " << bytes << ", \"recoveries\": " << g_reductions << ", \"timeouts\": " << g_timeouts
            << ", \"grown_at_exit\": " << g_grown_at_exit;
  if (!g_waited.empty()) {
    double sum = 0;
    for (double waited : g_waited) {
      sum += waited;
    }
    const double mean = sum / g_waited.size();
    std::nth_element(g_waited.begin(), g_waited.begin() + g_waited.size() / 2, g_waited.end());
    std::cout << ", \"mean\": " << mean << ", \"median\": " << g_waited[g_waited.size() / 2];
  }
  std::cout << "}" << std::endl;
  Simulator::Destroy();
  return 0;
}
