#include "agent/health.h"

#include "base/timestamp.h"

void health_queue(struct health *h, int64_t now_us)
{
    if (!h->queued_us)
        h->queued_us = now_us;
}

void health_update(struct health *h, int64_t now_wall)
{
    h->queued_us = 0;
    h->updated_wall = now_wall;
}

bool health_ok(const struct health *h, int64_t now_us)
{
    return !h->updated_wall || !h->queued_us || now_us - h->queued_us < HEALTH_PATIENCE_US;
}

void health_put(const struct health *h, int64_t now_us, int64_t now_wall, const bool *node_eligible,
                struct buf *out)
{
    char updated[TIME_TEXT_MAX], now[TIME_TEXT_MAX];
    bool ok = health_ok(h, now_us) && (!node_eligible || *node_eligible);
    buf_printf(out, "{\"lastUpdated\":\"%s\",\"currentTime\":\"%s\"",
               time_format(ok ? now_wall : h->updated_wall, updated), time_format(now_wall, now));
    if (node_eligible)
        buf_printf(out, ",\"nodeEligible\":%s", *node_eligible ? "true" : "false");
    buf_puts(out, "}\n");
}
