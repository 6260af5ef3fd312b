/*
 * Goodput of libfabric's fi_write between two processes on loopback:
 * `fi_write SECONDS poll|sleep [PROVIDER]`.
 *
 * The bench of the transport compiles this and holds WRITE beside it. One process writes messages of
 * a mebibyte, AHEAD of them under way at once, all from one buffer to one place in the memory of the
 * other: what the rows of WRITE do. It counts a message when libfabric says that the other process has it
 * (FI_DELIVERY_COMPLETE), since a WRITE is answered no earlier; libfabric's default would count it as
 * soon as its buffer is free. Nothing is encrypted: the provider has no means to.
 *
 * The provider moves bytes only while somebody asks for completions (FI_PROGRESS_MANUAL). Both processes
 * ask without pause (poll), or wait for the provider in the kernel while there are none (sleep). Which is
 * faster depends on the machine, and on who else wants its cores.
 *
 * Standard output gets the rate in Gbit/s, the standard error why there is none.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define MESSAGE_BYTES (1u << 20)
#define AHEAD 4
/* Left out of what is measured, as in the rows of ours. */
#define WARM_UP_S 0.3
/* Whoever waits longer for the other process gives up: it has failed, or never will connect. */
#define PATIENCE_S 10
/* The longest sleep without a look at the other process or the clock. */
#define MAX_SLEEP_MS 1
/* What the memory of the reading process holds at the end. */
#define WRITTEN 7
/* The key of its memory, where the provider lets us choose one. */
#define KEY 5

/* What one process tells the other before anything is sent. */
struct card {
    uint8_t name[64];
    uint64_t name_bytes;
    uint64_t key;
    uint64_t addr;
};

struct end {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    uint8_t *memory;
    fi_addr_t peer;
    int sleeps;
    struct card theirs;
};

static void give_up(const char *what, long code)
{
    fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-code));
    exit(1);
}

static void check(const char *what, long code)
{
    if (code < 0)
        give_up(what, code);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Asks for what the provider can do on the loopback address, and opens it. */
static void open_end(struct end *end, const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        give_up("fi_allocinfo", -FI_ENOMEM);
    hints->caps = FI_MSG | FI_RMA;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    /* One thread to an endpoint: the provider need not lock. */
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->fabric_attr->prov_name = strdup(provider);
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &end->info));
    fi_freeinfo(hints);

    check("fi_fabric", fi_fabric(end->info->fabric_attr, &end->fabric, NULL));
    check("fi_domain", fi_domain(end->fabric, end->info, &end->domain, NULL));
    struct fi_av_attr av = { .type = FI_AV_TABLE };
    check("fi_av_open", fi_av_open(end->domain, &av, &end->av, NULL));
    struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = end->sleeps ? FI_WAIT_UNSPEC : FI_WAIT_NONE };
    check("fi_cq_open", fi_cq_open(end->domain, &cq, &end->cq, NULL));
    check("fi_endpoint", fi_endpoint(end->domain, end->info, &end->ep, NULL));
    check("fi_ep_bind", fi_ep_bind(end->ep, &end->av->fid, 0));
    check("fi_ep_bind", fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
    check("fi_enable", fi_enable(end->ep));

    end->memory = aligned_alloc(4096, MESSAGE_BYTES);
    if (!end->memory)
        give_up("memory", -FI_ENOMEM);
    memset(end->memory, 0, MESSAGE_BYTES);
    check("fi_mr_reg", fi_mr_reg(end->domain, end->memory, MESSAGE_BYTES, FI_WRITE | FI_REMOTE_WRITE,
                                 0, KEY, 0, &end->mr, NULL));
}

/* Tells the other process where this one is, and learns where that one is. */
static void meet(struct end *end, int link)
{
    struct card ours = { .key = fi_mr_key(end->mr) };
    size_t bytes = sizeof ours.name;
    check("fi_getname", fi_getname(&end->ep->fid, ours.name, &bytes));
    ours.name_bytes = bytes;
    /* Memory is named by its address, or else by how far into it. */
    if (end->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        ours.addr = (uintptr_t)end->memory;
    struct card *theirs = &end->theirs;
    if (write(link, &ours, sizeof ours) != sizeof ours
        || recv(link, theirs, sizeof *theirs, MSG_WAITALL) != sizeof *theirs)
        give_up("the other process is gone", -FI_ECONNABORTED);
    if (fi_av_insert(end->av, theirs->name, 1, &end->peer, 0, NULL) != 1)
        give_up("fi_av_insert", -FI_EADDRNOTAVAIL);
}

/* Lets the provider work: how many operations have ended since. */
static long turn(struct end *end)
{
    struct fi_cq_entry entries[AHEAD];
    ssize_t count = end->sleeps ? fi_cq_sread(end->cq, entries, AHEAD, NULL, MAX_SLEEP_MS)
                                : fi_cq_read(end->cq, entries, AHEAD);
    if (count == -FI_EAGAIN || count == -FI_EINTR)
        return 0;
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = { 0 };
        fi_cq_readerr(end->cq, &error, 0);
        give_up("a write failed", -(long)error.err);
    }
    check("fi_cq_read", count);
    return count;
}

/* Stays until the writing process says that it is done; then looks at what it was sent. */
static int be_written_to(struct end *end, int link)
{
    struct pollfd said = { .fd = link, .events = POLLIN };
    for (unsigned turns = 0;; turns++) {
        turn(end);
        if ((end->sleeps || turns % 1024 == 0) && poll(&said, 1, 0) > 0)
            break;
    }
    char done = 0;
    if (recv(link, &done, 1, 0) != 1)
        return 1;
    for (unsigned i = 0; i < MESSAGE_BYTES; i++) {
        if (end->memory[i] != WRITTEN) {
            fprintf(stderr, "byte %u of what was written is missing\n", i);
            return 1;
        }
    }
    return 0;
}

/* Keeps messages under way for so long, and counts those that arrive: Gbit/s. */
static double write_for(struct end *end, double span_s)
{
    memset(end->memory, WRITTEN, MESSAGE_BYTES);
    struct fi_context contexts[AHEAD]; /* for providers that keep notes in them */
    uint64_t given = 0, arrived = 0, left_out = 0;
    double began = now_s(), heard = began, measured = 0, rate = 0;
    while (rate == 0 || arrived < given) {
        while (rate == 0 && given - arrived < AHEAD) {
            long code = fi_write(end->ep, end->memory, MESSAGE_BYTES, fi_mr_desc(end->mr), end->peer,
                                 end->theirs.addr, end->theirs.key, &contexts[given % AHEAD]);
            if (code == -FI_EAGAIN)
                break;
            check("fi_write", code);
            given++;
        }
        uint64_t more = (uint64_t)turn(end);
        arrived += more;
        double now = now_s();
        if (more > 0)
            heard = now;
        if (now - heard > PATIENCE_S)
            give_up("nothing arrives", -FI_ETIMEDOUT);
        if (measured == 0 && now - began >= WARM_UP_S && arrived > 0) {
            measured = now;
            left_out = arrived;
        }
        if (rate == 0 && measured > 0 && arrived > left_out && now - measured >= span_s)
            rate = 8e-9 * MESSAGE_BYTES * (double)(arrived - left_out) / (now - measured);
    }
    return rate;
}

int main(int count, char **arguments)
{
    double span_s = count > 1 ? atof(arguments[1]) : 2;
    const char *provider = count > 3 ? arguments[3] : "tcp;ofi_rxm";
    int links[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, links) != 0)
        give_up("socketpair", -errno);
    signal(SIGPIPE, SIG_IGN);
    /* Before libfabric is touched: what it holds does not survive a fork. */
    pid_t child = fork();
    if (child < 0)
        give_up("fork", -errno);
    int link = links[child == 0];
    close(links[child != 0]);

    struct end end = { .sleeps = count > 2 && strcmp(arguments[2], "sleep") == 0 };
    open_end(&end, provider);
    meet(&end, link);
    if (child == 0)
        return be_written_to(&end, link);
    double rate = write_for(&end, span_s);
    int status = 1;
    if (write(link, "", 1) != 1 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the process that was written to failed\n");
        return 1;
    }
    printf("%.3f\n", rate);
    return 0;
}
