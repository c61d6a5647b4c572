/* A kernel for tests of IPVS, which the one they run in may lack: virtual servers and destinations
 * are played, ipsets and addresses are real, in a network namespace of the test's own; kube-ipvs0 is
 * a bridge there, dummies lacking as well. Needs root. */
#pragma once

#include "kernel/ipvs.h"
#include "kernel/ipvs_genl.h"

struct ipvs_world;

/* A new namespace, empty. */
struct ipvs_world *ipvs_world_new(void);
void ipvs_world_free(struct ipvs_world *w);

struct ipvs_ports ipvs_world_ports(struct ipvs_world *w);
/* After so many datagrams from now on, over all ports, sending fails: as when the agent is killed. */
void ipvs_world_die_after(struct ipvs_world *w, unsigned datagrams);
void ipvs_world_revive(struct ipvs_world *w);
/* Messages since the last call that were meant to change something; all ports. */
unsigned ipvs_world_writes(struct ipvs_world *w);
/* The commands (IPVS_CMD_*) that changed servers and destinations since the last call, in order. */
const char *ipvs_world_commands(struct ipvs_world *w);
/* The next `times` commands are refused. */
void ipvs_world_refuse(struct ipvs_world *w, uint8_t command, unsigned times, int error);
/* The next answer to a command is lost, and all that was due with it. */
void ipvs_world_lose_answer(struct ipvs_world *w);

/* Somebody else's doing. */
void ipvs_world_put(struct ipvs_world *w, const struct ipvs_service *s);
void ipvs_world_put_dest(struct ipvs_world *w, const struct ipvs_service *s,
                         const struct ipvs_dest *d);
/* Connections of every destination at this address. */
void ipvs_world_connect(struct ipvs_world *w, const char *dest, uint32_t connections);
/* "tcp 10.96.0.1:80 rr 0: 10.0.0.1:8080/1 ...\n", sorted; a scratch that the next call takes. */
const char *ipvs_world_text(struct ipvs_world *w);
