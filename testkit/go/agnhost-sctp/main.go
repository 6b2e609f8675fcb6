// Command agnhost-sctp stands before upstream's program of this name in the image of the tests: where the kernel has no
// SCTP sockets, it speaks SCTP by raw sockets in its place, and everything else it leaves to it.
//
// It promises that a client says the same as upstream's: nothing where an association is answered, TIMEOUT on
// standard error where it is not. The kernel's packet filter and connection tracking see what a kernel with
// SCTP would send to open an association, INIT and INIT ACK. It never carries data: no test asks for any.
//
//	agnhost connect --protocol=sctp [--timeout=DURATION] HOST:PORT
//	agnhost porter                  a server on each port of SERVE_SCTP_PORT_N in the environment
//	agnhost ...                     upstream's, /agnhost.upstream
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	upstream = "/agnhost.upstream"
	protocol = 132
	// What a port is named by, in the environment of a server.
	served = "SERVE_SCTP_PORT_"
	// An INIT that is lost on the way is sent again, as a kernel would.
	retry = time.Second
)

func main() {
	arguments := os.Args[1:]
	switch {
	case kernelHasSCTP():
	case len(arguments) > 0 && arguments[0] == "connect":
		if target, timeout, ok := parseConnect(arguments[1:]); ok {
			os.Exit(connect(target, timeout))
		}
	case len(arguments) == 1 && arguments[0] == "porter":
		var ports []uint16
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, served) {
				port, err := strconv.ParseUint(strings.TrimPrefix(name, served), 10, 16)
				if err != nil {
					log.Fatalf("%s: %v", name, err)
				}
				ports = append(ports, uint16(port))
			}
		}
		if len(ports) > 0 {
			serve(ports)
		}
	}
	err := syscall.Exec(upstream, append([]string{"agnhost"}, arguments...), os.Environ())
	log.Fatalf("%s: %v", upstream, err)
}

func kernelHasSCTP() bool {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, protocol)
	if err == nil {
		_ = syscall.Close(socket)
	}
	return err == nil
}

// parseConnect says whether the arguments of connect ask for SCTP.
func parseConnect(arguments []string) (target string, timeout time.Duration, ok bool) {
	for n := 0; n < len(arguments); n++ {
		name, value, inline := strings.Cut(arguments[n], "=")
		if !strings.HasPrefix(name, "--") {
			target = arguments[n]
			continue
		}
		if !inline && n+1 < len(arguments) {
			n++
			value = arguments[n]
		}
		switch name {
		case "--protocol":
			ok = value == "sctp"
		case "--timeout":
			timeout, _ = time.ParseDuration(value)
		}
	}
	return target, timeout, ok && target != ""
}

// connect opens an association and answers with the exit code.
func connect(target string, timeout time.Duration) int {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return say("UNKNOWN: %v", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return say("UNKNOWN: %v", err)
	}
	address, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return say("DNS: %v", err)
	}
	socket, err := net.DialIP(family(address)+":"+strconv.Itoa(protocol), nil, address)
	if err != nil {
		return say("OTHER: %v", err)
	}
	defer socket.Close()
	source := uint16(32768 + rand.IntN(28232))
	tag := rand.Uint32() | 1
	first := packet(source, uint16(port), 0, initChunk, tag)
	end := time.Now().Add(timeout)
	buffer := make([]byte, 65536)
	for {
		if _, err := socket.Write(first); err != nil {
			return say("OTHER: %v", err)
		}
		pause := time.Now().Add(retry)
		if timeout > 0 && end.Before(pause) {
			pause = end
		}
		_ = socket.SetReadDeadline(pause)
		for {
			// Unlike Read, without the header of IPv4.
			length, _, err := socket.ReadFromIP(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			} else if err != nil {
				return say("OTHER: %v", err)
			}
			answer, ok := parse(buffer[:length])
			if !ok || answer.source != uint16(port) || answer.target != source || answer.verification != tag {
				continue
			}
			switch answer.chunk {
			case initAckChunk:
				return 0
			case abortChunk:
				return say("REFUSED")
			}
		}
		if timeout > 0 && !time.Now().Before(end) {
			return say("TIMEOUT")
		}
	}
}

func say(format string, values ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	return 1
}

func family(address *net.IPAddr) string {
	if address.IP.To4() != nil {
		return "ip4"
	}
	return "ip6"
}

// serve answers each INIT to one of the ports, in both families, for ever.
func serve(ports []uint16) {
	ended := make(chan error)
	for _, family := range []string{"ip4", "ip6"} {
		socket, err := net.ListenIP(family+":"+strconv.Itoa(protocol), nil)
		if err != nil {
			log.Printf("%s: %v", family, err)
			continue
		}
		log.Printf("SCTP by a raw socket on %v, %s", ports, family)
		go func() {
			buffer := make([]byte, 65536)
			for {
				length, from, err := socket.ReadFromIP(buffer)
				if err != nil {
					ended <- err
					return
				}
				asked, ok := parse(buffer[:length])
				if !ok || asked.chunk != initChunk {
					continue
				}
				for _, port := range ports {
					if port == asked.target {
						answer := packet(port, asked.source, asked.tag, initAckChunk, rand.Uint32()|1)
						_, _ = socket.WriteToIP(answer, from)
					}
				}
			}
		}()
	}
	log.Fatal(<-ended)
}

const (
	initChunk    = 1
	initAckChunk = 2
	abortChunk   = 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// packet is a packet of one chunk (RFC 9260, sections 3.3.2 and 3.3.3).
func packet(source, target uint16, verification uint32, chunk byte, tag uint32) []byte {
	var bytes []byte
	bytes = binary.BigEndian.AppendUint16(bytes, source)
	bytes = binary.BigEndian.AppendUint16(bytes, target)
	bytes = binary.BigEndian.AppendUint32(bytes, verification)
	bytes = append(bytes, 0, 0, 0, 0)
	bytes = append(bytes, chunk, 0, 0, 20)
	bytes = binary.BigEndian.AppendUint32(bytes, tag)
	bytes = binary.BigEndian.AppendUint32(bytes, 1<<16)
	bytes = append(bytes, 0, 1, 0, 1)
	bytes = binary.BigEndian.AppendUint32(bytes, 1)
	if chunk == initAckChunk {
		// An answer without a cookie is none: type 7, eight bytes.
		bytes[15] += 8
		bytes = append(bytes, 0, 7, 0, 8, 0, 0, 0, 0)
	}
	binary.LittleEndian.PutUint32(bytes[8:], crc32.Checksum(bytes, castagnoli))
	return bytes
}

type message struct {
	source, target    uint16
	verification, tag uint32
	chunk             byte
}

// parse reads a packet with the right checksum.
func parse(bytes []byte) (message, bool) {
	if len(bytes) < 16 {
		return message{}, false
	}
	sum := binary.LittleEndian.Uint32(bytes[8:])
	copied := append([]byte(nil), bytes...)
	clear(copied[8:12])
	if sum != crc32.Checksum(copied, castagnoli) {
		return message{}, false
	}
	read := message{
		source:       binary.BigEndian.Uint16(bytes),
		target:       binary.BigEndian.Uint16(bytes[2:]),
		verification: binary.BigEndian.Uint32(bytes[4:]),
		chunk:        bytes[12],
	}
	if read.chunk == initChunk || read.chunk == initAckChunk {
		if len(bytes) < 20 {
			return message{}, false
		}
		read.tag = binary.BigEndian.Uint32(bytes[16:])
	}
	return read, true
}
