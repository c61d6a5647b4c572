/* The service proxy's part of random clusters. Objects have their names already. */
#pragma once

#include "gen.h"

void gen_service(struct rng *r, enum gen_manner manner, struct service *s);
void gen_service_cidr(struct rng *r, enum gen_manner manner, struct service_cidr *c);
/* Of a slice of the Service, as its own ports may be called. */
const char *gen_port_name(struct rng *r, const char *service);
/* Conditions besides ready, and hints. */
void gen_endpoint(struct rng *r, struct arena *a, struct endpoint *e);
void gen_node_facts(struct rng *r, enum gen_manner manner, struct node *n);
