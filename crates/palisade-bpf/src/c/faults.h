/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Words of the configuration, and mistakes that can be switched on, to prove that tests find them. Programs without
 * faults have none of it.
 */
#ifndef PALISADE_FAULTS_H
#define PALISADE_FAULTS_H

#include "layout.h"

static __u64 config_word(__u32 number)
{
	__u64 *word = bpf_map_lookup_elem(&config, &number);

	return word ? *(volatile __u64 *)word : 0;
}

#ifdef PALISADE_FAULTS
static int has_fault(enum fault fault)
{
	return config_word(CONFIG_FAULT) == fault;
}
#else
#define has_fault(fault) 0
#endif

#endif
