#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "kernel/nft_impl.h"
#include "netlink/nl_attr.h"

struct nlmsghdr *nft_msg(struct nl_buf *b, struct nl_port *port, uint16_t type, uint16_t flags)
{
    struct nfgenmsg g = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };
    return nl_msg(b, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_REQUEST | flags,
                  nl_seq(port), &g, sizeof(g));
}

static struct nlmsghdr *batch_msg(struct nl_buf *b, struct nl_port *port, uint16_t type)
{
    struct nfgenmsg g = { .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES) };
    return nl_msg(b, type, NLM_F_REQUEST, nl_seq(port), &g, sizeof(g));
}

void nft_batch_begin(struct nl_buf *b, struct nl_port *port, uint32_t genid)
{
    nl_buf_clear(b);
    struct nlmsghdr *m = batch_msg(b, port, NFNL_MSG_BATCH_BEGIN);
    if (genid)
        mnl_attr_put_u32(m, NFNL_BATCH_GENID, htonl(genid));
}

int nft_batch_send(struct nl_buf *b, struct nl_port *port, struct nl_error *errors, size_t max,
                   size_t *ret_n, struct err *err)
{
    nl_end(b);
    /* BATCH_END is never answered, so the message before it asks for the proof. */
    struct nlmsghdr *last = (struct nlmsghdr *)(void *)(b->p + b->last);
    last->nlmsg_flags |= NLM_F_ACK;
    uint32_t last_seq = last->nlmsg_seq;
    batch_msg(b, port, NFNL_MSG_BATCH_END);
    size_t len = nl_end(b);
    return nl_batch(port, b->p, len, last_seq, errors, max, ret_n, err);
}

static struct nlmsghdr *table_msg(struct nl_buf *b, struct nl_port *port, uint16_t type,
                                  uint8_t family, const char *name)
{
    struct nlmsghdr *m = nft_msg(b, port, type, 0);
    ((struct nfgenmsg *)mnl_nlmsg_get_payload(m))->nfgen_family = family;
    mnl_attr_put_strz(m, NFTA_TABLE_NAME, name);
    return m;
}

int nft_table_delete(struct nl_port *port, uint8_t family, const char *name, bool dry_run,
                     bool *ret_existed, struct err *err)
{
    struct nl_buf b = { 0 };
    struct nl_error e;
    size_t n;
    int r = nl_talk(port, table_msg(&b, port, NFT_MSG_GETTABLE, family, name), err);
    bool exists = !r;
    if (exists && !dry_run) {
        nft_batch_begin(&b, port, 0);
        table_msg(&b, port, NFT_MSG_DELTABLE, family, name);
        r = nft_batch_send(&b, port, &e, 1, &n, err);
    }
    nl_buf_done(&b);
    /* -EINVAL: no such subsystem, a kernel without nftables */
    if (r && r != -ENOENT && (exists || r != -EINVAL)) {
        err_prefix(err, "cannot %s table %s %s", exists ? "delete" : "look for",
                   family == NFPROTO_INET   ? "inet"
                   : family == NFPROTO_IPV4 ? "ip"
                                            : "ip6",
                   name);
        return r;
    }
    *ret_existed = exists;
    return 0;
}

static int read_genid(const struct nlmsghdr *m, void *user)
{
    static const struct nl_policy policy[] = { [NFTA_GEN_ID] = NL_U32 };
    const struct nlattr *tb[NL_POLICY_COUNT(policy)];
    if (nl_parse(m, sizeof(struct nfgenmsg), policy, NL_POLICY_COUNT(policy), tb) ||
        !tb[NFTA_GEN_ID])
        return -EBADMSG;
    *(uint32_t *)user = ntohl(mnl_attr_get_u32(tb[NFTA_GEN_ID]));
    return 0;
}

int nft_genid(struct nl_port *port, uint32_t *ret, struct err *err)
{
    struct nl_buf b = { 0 };
    uint32_t id = 0;
    int r = nl_get(port, nft_msg(&b, port, NFT_MSG_GETGEN, 0), read_genid, &id, err);
    nl_buf_done(&b);
    if (!r && !id)
        r = err_set(err, EBADMSG, "the kernel did not tell the nftables generation");
    if (!r)
        *ret = id;
    return r;
}
