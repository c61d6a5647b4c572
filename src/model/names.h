/* Every name and number by which Portolan owns a kernel object. Repeated, for people, in
 * docs/operations.md; a test compares the two.
 *
 * Wire numbers (slot arithmetic, VNI, UDP port, mark) are those of the kuport API, so that
 * the two ends of a link may run different implementations. */
#pragma once

#define PORTOLAN_NFT_TABLE "portolan" /* family inet */

/* nftables hook priorities. A host firewall may drop new connections to node addresses
 * between -150 and -100 in prerouting: steering comes before it. */
#define PRIO_STEER    (-120) /* dstnat - 20 */
#define PRIO_DNAT     (-105) /* dstnat - 5 */
#define PRIO_IDENTITY (90)   /* srcnat - 10: claim before the CNI masquerades */
#define PRIO_MANGLE   (-150)
/* Service proxy: after PRIO_DNAT, so that a PortMap has its port before a node port has. */
#define PRIO_SERVICE    (-100) /* dstnat */
#define PRIO_LEARN      (-99)  /* the destination is translated */
#define PRIO_MASQUERADE (100)  /* srcnat */

/* Policy rules, in the order the kernel tries them. */
#define RULE_PRIO_OUTER 101 /* fwmark M to PEER lookup main: the outer packet of a link */
#define RULE_PRIO_LINK  102 /* fwmark M lookup 200+slot */
/* Replies leave where they came in: fwmark 0x6b70ffff lookup main, whose default route that is; or
 * fwmark 0x6b800000+TABLE lookup TABLE, when it is a traffic class's, after fwmark 0x6b800000+TABLE
 * lookup main suppress_prefixlength 0, since the class's table need not know the nearer networks. */
#define RULE_PRIO_EDGE_NEAR 102
#define RULE_PRIO_EDGE      103
/* Packets without a mark, which are nearly all, ask none of the rules from here to the end: each
 * takes its time, and there are two for every holder. */
#define RULE_PRIO_HELD_SKIP 101 /* fwmark 0/0xff000000 goto 105 */
#define RULE_PRIO_HELD_END  105 /* nop */
/* to SUBNET lookup main, of links: before traffic classes, to which a pod's connection into a link
 * is one to the world. Here, since the rules from 102 on are not asked. */
#define RULE_PRIO_LINK_NET 106
/* iif lo fwmark M/0xff000000 to NODE lookup main: outer packets of the overlay, the node's own */
#define RULE_PRIO_HELD_OUTER 103
#define RULE_PRIO_HELD       104 /* fwmark 0x6b000000/0xff000000 lookup 131072: endpoints behind it */
#define RULE_PRIO_HOLDER     104 /* fwmark M<<24/0xff000000 lookup 131072+M: replies to a holder */

/* Traffic classes: routes in tables BIRD writes to as well, at metric 32. */
#define TRAFFIC_THROW_METRIC  8192
#define TRAFFIC_REJECT_METRIC 8193

#define RTPROT_PORTOLAN 107 /* 0x6b; our routes, rules and addresses carry it */

#define LINK_MARK_BASE  0x6b700000u
#define EDGE_MARK       0x6b70ffffu
#define EDGE_MARK_BASE  0x6b800000u /* of a traffic class's table */
#define EDGE_TABLE_MAX  0x7fffffu
#define LINK_TABLE_BASE 200u
#define LINK_SLOT_MAX   0xfffeu /* EDGE_MARK is taken */

/* Held addresses: connections to them that need the overlay, and those that holder M forwarded here,
 * 1 to 250. All in the top byte; 0x6b, with which the marks above begin, is no holder's. */
#define HOLDER_MARK_MAX  250u
#define HOLDER_MARK_MASK 0xff000000u
#define HOLDER_MARK(m)   ((uint32_t)(m) << 24)
#define HELD_TOP         0x6bu
#define HELD_MARK        HOLDER_MARK(HELD_TOP)
#define HELD_TABLE       131072u
#define HOLDER_TABLE(m)  (HELD_TABLE + (m))

/* The kernel's own tables: a link's are elsewhere, and of a class only main may be. */
#define TABLE_DEFAULT 253u
#define TABLE_MAIN    254u
#define TABLE_LOCAL   255u

/* VXLAN over IPv4: 14 inner Ethernet + 20 IP + 8 UDP + 8 VXLAN. */
#define VXLAN_OVERHEAD 50

/* Stand-in destinations of a new connection between steering and DNAT. */
#define STANDIN4     "169.254.76.1"
#define STANDIN4_NET "169.254.76.0/24"
#define STANDIN6     "fd64:f5ac:e961:76::1"
#define STANDIN6_NET "fd64:f5ac:e961:76::/64"

/* A link is called pl<vni>, with p<port in hex> appended unless the port is 4790. It is
 * ours when it is of kind vxlan, has such a name, and its alias starts with "portolan:". */
#define LINK_PREFIX       "pl"
#define LINK_ALIAS_PREFIX "portolan:"
#define LINK_DEFAULT_PORT 4790

/* The device of --overlay vxlan, one to all nodes; ours by the same three signs. */
#define OVERLAY_LINK  "plo"
#define OVERLAY_ALIAS LINK_ALIAS_PREFIX " overlay"
#define OVERLAY_VNI   0x6b0000u
#define OVERLAY_PORT  LINK_DEFAULT_PORT
