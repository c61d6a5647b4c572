/* A netlink port for tests: plays the kernel, or stands before a real one and lets faults
 * happen. It records everything sent.
 *
 * Without a real port behind it, every message with NLM_F_ACK is acknowledged, and a dump
 * request is answered with what fake_dump() prepared for its type (nothing by default), in
 * datagrams of a few messages, ended by NLMSG_DONE. */
#pragma once

#include "netlink/nl.h"

/* `real` may be NULL; it is closed with the fake one. Close with nl_close(). */
struct nl_port *fake_port_new(struct nl_port *real);

/* What goes out (a datagram passes to the real port only when nothing in it is refused, as a
 * kernel transaction would; the other messages of it that ask for an ACK still get one). */

/* The message with this sequence number is refused. */
void fake_refuse_seq(struct nl_port *p, uint32_t seq, int error, const char *text);
/* The next `times` messages of this type are refused, after letting `skip` pass. */
void fake_refuse_type(struct nl_port *p, uint16_t type, unsigned skip, unsigned times, int error,
                      const char *text);
/* The next `times` calls of send return -error and send nothing. */
void fake_fail_send(struct nl_port *p, unsigned times, int error);

/* What comes back. */

/* After `skip` datagrams, the next `times` calls of recv return -error. EMSGSIZE and ENOBUFS
 * lose the datagram that was due; any other error only delays it. */
void fake_fail_recv(struct nl_port *p, unsigned skip, unsigned times, int error);
/* After `skip` datagrams, one arrives cut to `len` bytes. */
void fake_cut_recv(struct nl_port *p, unsigned skip, size_t len);
/* After `skip` datagrams, the next one says NLM_F_DUMP_INTR. */
void fake_interrupt_dump(struct nl_port *p, unsigned skip);
/* After `skip` datagrams, all that is due is lost: a dump ends without NLMSG_DONE. */
void fake_lose_rest(struct nl_port *p, unsigned skip);

/* The answer to dump requests of `type` from now on, in the format of struct nl_buf; copied.
 * Without a real port only. */
void fake_dump(struct nl_port *p, uint16_t type, const void *messages, size_t len);
/* A datagram as it is, in front of everything due. */
void fake_push(struct nl_port *p, const void *datagram, size_t len);

/* How many messages of this type were sent, refused ones included; 0: of any type. */
size_t fake_sent(const struct nl_port *p, uint16_t type);
/* The i-th of them, or NULL. */
const struct nlmsghdr *fake_sent_message(const struct nl_port *p, uint16_t type, size_t i);
void fake_forget_sent(struct nl_port *p);
