/* What the files of this back end share: reading the kernel (ipvs_read.c), working off differences
 * (ipvs_apply.c), and the call around both (ipvs.c). */
#pragma once

#include "kernel/ipvs.h"
#include "kernel/ipvs_device.h"
#include "kernel/ipvs_store.h"

/* Messages sent at a time. */
#define IPVS_BATCH 512

enum ipvs_action { IPVS_ADD, IPVS_CHANGE, IPVS_DELETE };
#define IPVS_ACTIONS (IPVS_DELETE + 1)
#define IPVS_KINDS   (IPVS_DEST + 1)
struct ipvs_list {
    uint32_t *v; /* records */
    size_t n, cap;
};

/* A set that cannot be had, and why. */
struct ipvs_lacking {
    enum ipvs_set set;
    uint8_t family;
    int error; /* errno's, or an IPSET_ERR_* */
    struct err err;
};

struct ipvs {
    struct ipvs_ports ports;
    struct ipvs_settings settings;
    struct iptables *iptables;
    uint16_t genl; /* message type; 0: not asked for yet */
    struct ipvs_device device;
    bool is_known; /* the store has what the kernel has */
    struct ipvs_store store;
    struct ipvs_group **groups; /* that the store counts, by owner */
    size_t n_groups;
    struct ipvs_list drains, refused;
    struct nl_buf buf;
    VEC(struct ipvs_key) udp; /* servers that changed, themselves or a destination */
    bool told;                /* conntrack has heard of every flow once */
    bool unmasqueraded;       /* flows may have begun without the rules */
    VEC(struct flow_target) flows;
    struct arena flow_mem;           /* their ends */
    bool missing[2][KUBE_SET_COUNT]; /* sets, by family: IPv4, IPv6 */
    VEC(struct ipvs_lacking) lacking;
    const char *option[2][KUBE_SET_COUNT]; /* what a set was made with otherwise; NULL: nothing */
};

/* Reads what the kernel has of ours into the store. */
int ipvs_read(struct ipvs *v, struct err *err);
/* Its sets. One of another type lacks: with what depends on it, it is left out. */
int ipvs_sets_read(struct ipvs *v, struct err *err);
/* Makes those that are missing, and others in the place of those that were made otherwise; says which
 * lack. */
void ipvs_sets_make(struct ipvs *v, struct report *report);
/* False: not with the sets that lack. An element of one; a server, with its destinations, whose source
 * ranges nobody would keep. */
bool ipvs_sets_allow(const struct ipvs *v, const struct ipvs_key *k);
/* The rules as if the sets that lack were empty: without those that would never match, and without the
 * matches that always would. `rules` itself when none lacks; NULL for NULL. */
const char *ipvs_sets_rules(const struct ipvs *v, uint8_t family, const char *rules,
                            struct buf *scratch);
/* A change of the kernel's that conntrack may have to hear of. */
void ipvs_udp_note(struct ipvs *v, const struct ipvs_key *k);
/* The destinations of a server: of those in the store that nobody wants, whether they are busy. */
int ipvs_read_busy(struct ipvs *v, const struct ipvs_key *server, struct err *err);

struct ipvs_ops {
    struct ipvs_list of[IPVS_ACTIONS][IPVS_KINDS];
    struct ipvs_list taken_along; /* destinations that go with their server */
};
/* Of the touched records. */
void ipvs_difference(struct ipvs *v, struct ipvs_ops *ret);
void ipvs_ops_done(struct ipvs_ops *ops);
/* Elements; then, when there are rules for them, all else that is new; then what goes. */
int ipvs_apply_elements(struct ipvs *v, const struct ipvs_ops *ops, struct report *report,
                        struct err *err);
int ipvs_apply(struct ipvs *v, const struct ipvs_ops *ops, struct report *report, struct err *err);
