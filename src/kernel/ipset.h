/* ipsets over netlink (linux/netfilter/ipset/ip_set.h): those of model/ipvs.h as messages and back,
 * and those that kube-proxy leaves. Sets of other names are nobody's business here. */
#pragma once

#include "base/buf.h"
#include "kernel/kubeproxy.h"
#include "model/ipvs.h"
#include "netlink/nl.h"

/* What the kernel's subsystem adds to errno's numbers (`error` is positive), in words. */
const char *ipset_error(int error);

/* A set that takes another's place. */
#define IPSET_SPARE "KUBE-PORTOLAN-SPARE"

/* Messages to be acknowledged: a set made as this one is to be, and destroyed; two that change places,
 * which rules do not notice; an element added, which may be there already (IPSET_CMD_ADD), or deleted
 * (IPSET_CMD_DEL). */
void ipset_put_create(struct nl_buf *b, struct nl_port *netfilter, const char *name,
                      enum ipvs_set set, uint8_t family);
void ipset_put_destroy(struct nl_buf *b, struct nl_port *netfilter, const char *name);
void ipset_put_swap(struct nl_buf *b, struct nl_port *netfilter, const char *a, const char *z);
void ipset_put_element(struct nl_buf *b, struct nl_port *netfilter, uint8_t command,
                       const char *name, const struct ipvs_key *k);

struct ipset_reader {
    void *user;
    void (*element)(void *user, const struct ipvs_key *k);
    void (*restart)(void *user); /* what was told of this set does not count */
};
/* Tells every element of the set. 0; -ENOENT when there is no such set or a kernel without ipsets;
 * -EEXIST when there is one of another type; or -errno. *ret_option: what `ipset create` has made
 * otherwise than elements need ("maxelem"); NULL: nothing. */
int ipset_read(struct nl_port *netfilter, enum ipvs_set set, uint8_t family,
               const struct ipset_reader *reader, const char **ret_option, struct err *err);
/* Whether there is a set of this name, of whatever type. */
int ipset_exists(struct nl_port *netfilter, const char *name, bool *ret, struct err *err);

/* Destroys those of kube-proxy's ipvs mode, or of ours, by their names, since others have sets that begin
 * with KUBE- too; lists them into `out`, one "- ..." a line; one that a rule still uses stays and is
 * listed with "! ...". `dry_run` only lists. 0, also on a kernel without ipsets, or -errno. */
int ipset_cleanup(struct nl_port *netfilter, enum kubeproxy_whose whose, bool dry_run,
                  struct buf *out, struct err *err);
