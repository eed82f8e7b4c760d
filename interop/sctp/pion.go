// One association of pion's SCTP, over UDP (RFC 6951): sends and checks the same pattern as its counterpart (../peer.h).
// It is no endpoint that listens at a port, as WebRTC needs none: it speaks to one peer, and is SCTP port 5000.
//
//	pion --bind ADDR --udp P (--listen | --connect ADDR --to-udp P) [what to do]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/pion/logging"
	"github.com/pion/sctp"
)

const (
	period  = 1 << 16
	largest = 1 << 21
	buffer  = 4 << 20
	// In every payload protocol id.
	numbered = 1 << 31
	// Bytes that wait for the window before the next message.
	ahead = 1 << 20
)

var (
	bind       = flag.String("bind", "", "our address")
	udp        = flag.Int("udp", 0, "our UDP port")
	port       = flag.Int("port", 5000, "our SCTP port, not to be chosen")
	listen     = flag.Bool("listen", false, "waits for the peer")
	connect    = flag.String("connect", "", "connects to this address")
	toUDP      = flag.Int("to-udp", 0, "the peer's UDP port")
	toPort     = flag.Int("to-port", 5000, "the peer's SCTP port, not to be chosen")
	streams    = flag.Int("streams", 1, "streams that are sent on")
	count      = flag.Int("count", 0, "messages to send")
	size       = flag.Int("size", 1000, "bytes of the largest")
	sizes      = flag.Int("sizes", 1, "different sizes, from one byte on")
	expect     = flag.Int("expect", 0, "messages to receive")
	limit      = flag.Int("limit", 30, "seconds it may take")
	pace       = flag.Int("pace", 0, "microseconds from one message to the next")
	unordered  = flag.Bool("unordered", false, "in no order")
	lifetime   = flag.Int("lifetime", -1, "milliseconds after which a message is given up")
	partial    = flag.Bool("partial", false, "the peer gives messages up")
	resetAfter = flag.Int("reset-after", 0, "streams end after so many messages, and others begin")
	stay       = flag.Bool("stay", false, "leaves the end to the peer")
	abort      = flag.Bool("abort", false, "ends by ABORT")
)

// A UDP socket that speaks to whoever wrote last.
type conn struct {
	*net.UDPConn
	lock sync.Mutex
	peer *net.UDPAddr
}

func (c *conn) Read(b []byte) (int, error) {
	n, from, err := c.ReadFromUDP(b)
	if err == nil {
		c.lock.Lock()
		c.peer = from
		c.lock.Unlock()
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.lock.Lock()
	peer := c.peer
	c.lock.Unlock()
	return c.WriteToUDP(b, peer)
}

func (c *conn) RemoteAddr() net.Addr { return c.peer }

// What was sent and what came, and how it ended.
type tally struct {
	lock                     sync.Mutex
	sent, got, wrong, resets int
	sentBytes, gotBytes      int
	pattern                  []byte
	open                     map[int]*sctp.Stream
	seen                     map[[2]uint32]bool
	readers                  map[uint16]bool
}

func (t *tally) content(stream uint16, number uint32, size int) []byte {
	at := (uint32(stream)*31 + number*7) % period
	return t.pattern[at : int(at)+size]
}

// A message came; `next` is the number that is due on its stream.
func (t *tally) take(stream uint16, next *uint32, ppid uint32, message []byte) {
	number := ppid &^ numbered
	t.lock.Lock()
	defer t.lock.Unlock()
	right := bytes.Equal(message, t.content(stream, number, len(message)))
	switch {
	case *unordered:
		key := [2]uint32{uint32(stream), number}
		right = right && !t.seen[key]
		t.seen[key] = true
	case *partial:
		right = right && number >= *next
	default:
		right = right && number == *next
	}
	*next = number + 1
	if !right {
		fmt.Fprintf(os.Stderr, "wrong: message %d of %d bytes on stream %d\n", number, len(message), stream)
		t.wrong++
	}
	t.got++
	t.gotBytes += len(message)
}

// Takes what comes on a stream until that is reset or all is over.
func (t *tally) read(s *sctp.Stream) {
	t.lock.Lock()
	known := t.readers[s.StreamIdentifier()]
	t.readers[s.StreamIdentifier()] = true
	t.lock.Unlock()
	if known {
		return
	}
	into, next := make([]byte, largest), uint32(0)
	for {
		n, ppid, err := s.ReadSCTP(into)
		if err != nil {
			if errors.Is(err, io.EOF) {
				t.lock.Lock()
				t.resets++
				t.lock.Unlock()
			}
			return
		}
		t.take(s.StreamIdentifier(), &next, uint32(ppid), into[:n])
	}
}

func nextSize(i int) int {
	if *sizes <= 1 {
		return *size
	}
	return 1 + (*size-1)*(i%*sizes)/(*sizes-1)
}

func (t *tally) begin(a *sctp.Association, number int) (*sctp.Stream, error) {
	s, err := a.OpenStream(uint16(number), 0)
	if err != nil {
		return nil, err
	}
	kind, value := byte(sctp.ReliabilityTypeReliable), uint32(0)
	if *lifetime >= 0 {
		kind, value = sctp.ReliabilityTypeTimed, uint32(*lifetime)
	}
	s.SetReliabilityParams(*unordered, kind, value)
	go t.read(s)
	return s, nil
}

// Bytes that were not acknowledged yet.
func (t *tally) waiting() uint64 {
	sum := uint64(0)
	for _, s := range t.open {
		sum += s.BufferedAmount()
	}
	return sum
}

// Sends all there is to send. What is reset is not used again, as with data channels.
func (t *tally) send(a *sctp.Association) error {
	next, first := map[int]uint32{}, 0
	for i := 0; i < *count; i++ {
		if *resetAfter > 0 && i == *resetAfter {
			for _, s := range t.open {
				if err := s.Close(); err != nil {
					return err
				}
			}
			first = *streams
		}
		number := first + i%*streams
		s := t.open[number]
		if s == nil {
			var err error
			if s, err = t.begin(a, number); err != nil {
				return err
			}
			t.open[number] = s
		}
		for t.waiting() > ahead {
			time.Sleep(time.Millisecond)
		}
		message := t.content(uint16(number), next[number], nextSize(i))
		if _, err := s.WriteSCTP(message, sctp.PayloadProtocolIdentifier(next[number]|numbered)); err != nil {
			return err
		}
		next[number]++
		t.lock.Lock()
		t.sent, t.sentBytes = t.sent+1, t.sentBytes+len(message)
		t.lock.Unlock()
		if *pace > 0 {
			time.Sleep(time.Duration(*pace) * time.Microsecond)
		}
	}
	return nil
}

func (t *tally) isDone() bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.sent >= *count && t.got >= *expect
}

// Opens the association, or has it opened.
func associate() (*sctp.Association, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(*bind), Port: *udp})
	if err != nil {
		return nil, err
	}
	socket.SetReadBuffer(buffer)
	config := sctp.Config{
		NetConn:              &conn{UDPConn: socket, peer: &net.UDPAddr{IP: net.ParseIP(*connect), Port: *toUDP}},
		MaxReceiveBufferSize: buffer,
		MaxMessageSize:       largest,
		LoggerFactory:        logging.NewDefaultLoggerFactory(),
	}
	if *listen {
		fmt.Println("listening")
		return sctp.Server(config)
	}
	return sctp.Client(config)
}

// One association to its end; how it ended.
func run(t *tally) string {
	a, err := associate()
	if err != nil {
		return fmt.Sprintf("%q", err.Error())
	}
	over, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(over)
		for {
			s, err := a.AcceptStream()
			if err != nil {
				return
			}
			go t.read(s)
		}
	}()
	go func() {
		if err := t.send(a); err != nil {
			failed <- err
		}
	}()
	late := time.After(time.Duration(*limit) * time.Second)
	for !t.isDone() || *stay {
		select {
		case <-over:
			return "closed"
		case err := <-failed:
			return fmt.Sprintf("%q", err.Error())
		case <-late:
			return "late"
		case <-time.After(5 * time.Millisecond):
		}
	}
	if *abort {
		go a.Abort("asked to")
		time.Sleep(100 * time.Millisecond)
		return "aborted"
	}
	for t.waiting() > 0 {
		time.Sleep(time.Millisecond)
	}
	context, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := a.Shutdown(context); err != nil {
		return fmt.Sprintf("%q", err.Error())
	}
	return "shutdown"
}

func main() {
	flag.Parse()
	t := &tally{open: map[int]*sctp.Stream{}, seen: map[[2]uint32]bool{}, readers: map[uint16]bool{}, pattern: make([]byte, period+largest)}
	for i := range t.pattern {
		place := i % period
		t.pattern[i] = byte(place*31 ^ place>>8)
	}
	ended := run(t)
	// What came last may still be looked at.
	time.Sleep(50 * time.Millisecond)
	t.lock.Lock()
	fmt.Printf("sent=%d sent_bytes=%d got=%d got_bytes=%d wrong=%d resets=%d ended=%s\n",
		t.sent, t.sentBytes, t.got, t.gotBytes, t.wrong, t.resets, ended)
	if t.sent < *count || t.got < *expect || t.wrong > 0 {
		os.Exit(1)
	}
}
