#include "model/status.h"

enum object_kind status_write_target(enum status_write_kind kind)
{
    switch (kind) {
    case WRITE_PORTMAP_STATUS:
        return KIND_PORTMAP;
    case WRITE_CLASS_ROW:
    case WRITE_CLASS_LINKS:
    case WRITE_CLASS_CONDITION:
        return KIND_PORTMAPCLASS;
    case WRITE_TRAFFIC_ROW:
    case WRITE_TRAFFIC_STATUS:
        return KIND_TRAFFICCLASS;
    case WRITE_NODE_ANNOTATIONS:
        return KIND_NODE;
    case WRITE_SERVICE_STATUS:
        return KIND_SERVICE;
    }
    return KIND_COUNT;
}

bool status_write_merges(enum status_write_kind kind)
{
    return kind == WRITE_CLASS_ROW || kind == WRITE_TRAFFIC_ROW || kind == WRITE_NODE_ANNOTATIONS;
}
