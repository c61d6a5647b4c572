/* Elements as a kernel dumps them: any bytes are read or refused, and what is read is written and
 * read back equal. (Tables, chains and rules are read by libnftnl, which trusts the kernel.)
 *
 * The input is the number of the set in one byte, then the attributes of one message. */
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>

#include "kernel/nft_impl.h"
#include "model/nft_text.h"
#include "plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct plan_options options = { .portmap = true, .serviceproxy = true };

/* Number 1 is known. */
static struct nft_class_ref known = { .class = { .family = IP_V4, .kind = NFT_CLASS_DROP },
                                      .number = 1 };
static const struct nft_classes classes = { .v = &known, .n = 1 };

static void must_be_equal(const struct nft_ops *a, const struct nft_ops *b)
{
    if (a->n != b->n)
        __builtin_trap();
    for (size_t i = 0; i < a->n; i++)
        if (!nft_elem_equal(a->v[i].elem, b->v[i].elem))
            __builtin_trap();
}

static void write_and_read_again(struct nft_ops *ops, enum nft_set set, struct arena *mem)
{
    struct nl_port port = { .fd = -1 };
    struct nl_buf b = { 0 };
    struct nft_ops again = { 0 };
    struct buf text = { 0 };
    const struct nft_table table = plan_ruleset(&options);
    nft_elem_put(&b, &port, &table, NFT_MSG_NEWSETELEM, &classes, ops, false);
    size_t len = nl_end(&b);
    for (const struct nlmsghdr *m = NULL; (m = nl_walk(b.p, len, m));)
        if (nft_elem_parse(m, set, &classes, mem, &again))
            __builtin_trap();
    nft_elem_pair(set, mem, &again, 0);
    must_be_equal(ops, &again);
    for (size_t i = 0; i < ops->n; i++)
        nft_text_element(&text, &table, ops->v[i].elem);
    buf_done(&text);
    vec_done(&again);
    nl_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!n || n > 60000)
        return 0;
    enum nft_set set = data[0] % NFT_SET_COUNT;
    struct nfgenmsg g = { 0 };
    struct nl_buf b = { 0 };
    struct arena mem = { 0 };
    struct nft_ops ops = { 0 };
    struct nlmsghdr *m = nl_msg(&b, NFT_MSG_NEWSETELEM, 0, 1, &g, sizeof(g));
    memcpy(mnl_nlmsg_get_payload_tail(m), data + 1, n - 1);
    m->nlmsg_len += (uint32_t)n - 1;
    if (!nft_elem_parse(m, set, &classes, &mem, &ops)) {
        nft_elem_pair(set, &mem, &ops, 0);
        write_and_read_again(&ops, set, &mem);
    }
    vec_done(&ops);
    arena_done(&mem);
    nl_buf_done(&b);
    return 0;
}
