/* The life of an offset: commit first, low mark, reading again from it, journal, resend.
 *
 * One partition, two instances, requests of one key whose ids a fair producer sends again. What may
 * go wrong is bounded (FAULTS, MOVES, EAGER), and all of it is tried. `scripts/model` runs it, and the
 * variants with one rule broken (-DNO_TOKEN and so on), each of which must fail.
 *
 * What stands for which code:
 *   polls, commits, hears, reads back, again   consumer/intake/commit.py, open_commit.py, settlement.py
 *   marks, what is unfinished, in hand         consumer/intake/unfinished.py, offset_metadata.py
 *   asks where to begin                        consumer/intake/starting_points.py
 *   is asked to give up, says its last word    consumer/intake/letting_go.py, processing/pool/departed_records.py
 *   assigned, leaves, joins                    consumer/intake/assignment.py, loop.py
 *   starts, commits a transaction              processing/worker/dedup.py, effect_transaction.py
 *   claims, makes, journals a call             processing/worker/effect_external.py
 *   the journal's primary key                  feedback/journal/writer.py
 *   the producer                               feedback/client/pending.py, delivery.py
 *
 * Safety, by assertions: no id has two effects; no offset is taken as a fresh one twice; no committed
 * mark is above an offset that is not finished; effects come in the order of offsets. Liveness:
 * nothing goes on for ever (there is no cycle, so no fairness is assumed but that what can happen
 * does), and where nothing can happen any more every id has its end in the journal, without anything
 * being sent again as long as marks are read. A call whose end nobody knows has its end: in doubt.
 *
 * Left out: more partitions, breaks of connections that nobody reports (tests/model/group.py has
 * these), retries and the waiting queue, and the bound on how often a mark is read again.
 */

#ifndef IDS
#define IDS 2      /* requests; the producer has sent each once, in the order of their numbers */
#endif
#ifndef EXTERNAL
#define EXTERNAL 0 /* bits of ids that are external calls */
#endif
#ifndef LOG
#define LOG IDS    /* messages in the partition, with what is sent again */
#endif
#ifndef EAGER
#define EAGER 0    /* resends by a producer that does not wait for the first one's end */
#endif
#ifndef FAULTS
#define FAULTS 1   /* kills, evictions, broken connections, errors, lost replies */
#endif
#ifndef MOVES
#define MOVES 1    /* planned hand-overs of the partition */
#endif

#define NOBODY 2
#ifndef READ_AGAIN
#define READ_AGAIN 1   /* 0: marks are told and read by nobody */
#endif

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define BIT(o) (1 << (o))
#define RANGE(a, b) ((1 << (b)) - (1 << (a)))
#define LOWEST(set, other) (((set) & 1) -> 0 : (((set) & 2) -> 1 : (((set) & 4) -> 2 : (((set) & 8) -> 3 : (((set) & 16) -> 4 : (other))))))
#define IS_CALL(o) ((EXTERNAL >> log[o]) & 1)

/* Journal */
#define ABSENT 0
#define CLAIMED 1  /* by an external call; in doubt once its lease has ended */
#define DONE 2

/* Phases of the open commit */
#define NO_COMMIT 0
#define SENT 1
#define ASKED 2
#define AGAIN 3

/* Answers */
#define UNHEARD 0
#define OK 1
#define TRY_AGAIN 2
#define PUT_OUT 3

typedef Bytes {    /* an OffsetCommit on its way */
    bit there;
    bit valid;   /* of the group's present generation */
    bit known;   /* of a membership that the group still has */
    bit present; /* of the commit that is open */
    byte offset, mark
};

typedef Instance {
    bit alive;
    bit joined;          /* as its client knows */
    bit current;         /* knows of the group's generation */
    bit owns;
    bit giving_up;       /* asked to give the partition up: what runs may finish for a moment */
    bit leaving;
    bit asks;            /* for the committed offset and its mark, where it begins */
    byte base;           /* the committed offset then: what lies below it is read again */
    byte buffered, position;            /* what was polled and is in no commit yet */
    byte phase, offset, first, upto, mark;   /* the open commit and its records */
    bit same;            /* still in the assignment in which it began */
    bit broken, out;
    byte answer;
    byte hand;           /* offsets to run */
    byte unfinished;     /* offsets taken in this assignment and not finished */
    byte runs;           /* an offset + 1 */
    byte stage;
    byte orphan          /* an offset + 1: what its killed worker left at the database or the callee */
};

Instance p[2];
Bytes net[2], late[2];   /* on the present connection, and on one that broke */
Bytes last_word[2];
byte log[LOG];
byte end = IDS;
byte owner, target = NOBODY;
bit in[2];               /* the group's members */
byte committed, committer = NOBODY, committed_mark;
bit committed_present;   /* with the token of the commit that its sender has open */
byte journal[IDS], effects[IDS];
byte fresh;              /* offsets that were taken as fresh ones */
byte last;               /* the highest first send with an effect, + 1 */
byte faults = FAULTS, moves = MOVES, eager = EAGER;

#define FAULT faults > 0
#define IDLE(i) (p[i].alive && p[i].owns && !p[i].asks && p[i].phase == NO_COMMIT && !p[i].leaving && !net[i].there)
#define LOW(i, other) LOWEST(p[i].unfinished, other)

#define FRESH(i) (p[i].upto > p[i].base -> RANGE(MAX(p[i].first, p[i].base), p[i].upto) : 0)
#define SAY(i, what) printf(what, i)

/* One rule broken at a time: each of these must fail. */

#if defined(MARK_IS_COMMITTED)
#define MARK_OF(i) p[i].offset
#elif defined(MARK_SKIPS_ITS_RECORDS)
#define MARK_OF(i) LOW(i, p[i].offset)
#else
#define MARK_OF(i) (READ_AGAIN -> LOW(i, p[i].first) : p[i].offset)
#endif

#if defined(MARK_SKIPS_UNREAD)   /* of a gap of which only a part was read */
#define BUFFERED(i) MAX(p[i].base, p[i].buffered)
#else
#define BUFFERED(i) p[i].buffered
#endif

#if defined(LAST_WORD_SKIPS_OPEN)
#define OPEN_WITH_RECORDS(i) 0
#else
#define OPEN_WITH_RECORDS(i) (p[i].phase != NO_COMMIT && p[i].same)
#endif

#if defined(LEFT_OUT_IS_FINISHED)   /* what it has in hand of an earlier assignment */
#define UNFINISHED(i, set) (set) & ~p[i].hand
#else
#define UNFINISHED(i, set) (set)
#endif

#if defined(GIVEN_UP_IS_FINISHED)
#define GIVEN_UP(i) p[i].unfinished = p[i].unfinished & p[i].hand
#else
#define GIVEN_UP(i) skip
#endif

#if defined(RUNS_WHILE_GIVING_UP)
#define TO_POOL(i, set) p[i].hand = p[i].hand | (set)
#else
#define TO_POOL(i, set) p[i].hand = p[i].hand | (p[i].giving_up -> 0 : (set))
#endif

#if defined(DISPATCH_EARLY)
#define EARLY(i) take(i)
#else
#define EARLY(i) skip
#endif

#if defined(ERROR_IS_TAKEN_FOR_LANDED)
#define NOT_OK(i) landed(i)
#else
#define NOT_OK(i) p[i].phase = ASKED
#endif

#if defined(NO_TOKEN)
#define OURS(i) (committed == p[i].offset)
#else
#define OURS(i) (committed == p[i].offset && committer == i && committed_present)
#endif

#if defined(AGAIN_AFTER_REVOKE)
#define MAY_GO_AGAIN(i) 1
#else
#define MAY_GO_AGAIN(i) p[i].same
#endif

#if defined(NO_REJOIN)
#define REJOINS 0
#else
#define REJOINS 1
#endif

#if defined(NEW_BEFORE_GAP)
#define NEXT(i) (p[i].hand & 2 -> 1 : LOWEST(p[i].hand, 0))
#else
#define NEXT(i) LOWEST(p[i].hand, 0)
#endif

#if defined(NO_PRIMARY_KEY)
#define COMMIT_ROW(o) journal[log[o]] = DONE; effect(o)
#else
#define COMMIT_ROW(o) \
    if \
    :: journal[log[o]] == ABSENT -> journal[log[o]] = DONE; effect(o) \
    :: else \
    fi
#endif

#if defined(CLAIM_AFTER_CALL)
#define CLAIM_CALL(o) skip
#else
#define CLAIM_CALL(o) journal[log[o]] = CLAIMED
#endif

#if defined(CLAIMS_ARE_CALLED_AGAIN)
#define ANSWERED(o) (journal[log[o]] == DONE)
#else
#define ANSWERED(o) (journal[log[o]] != ABSENT)
#endif

/* Commits */

inline send(i) {
    p[i].phase = SENT; p[i].answer = UNHEARD; p[i].same = 1; p[i].broken = 0; p[i].out = 0;
    late[i].present = 0;
    committed_present = (committer == i -> 0 : committed_present);
    put_bytes(i)
}

inline put_bytes(i) {
    net[i].there = 1; net[i].valid = in[i] && p[i].current; net[i].known = in[i] && p[i].joined;
    net[i].present = 1; net[i].offset = p[i].offset; net[i].mark = p[i].mark
}

inline apply(bytes, i) {
    committed = bytes.offset; committer = i; committed_present = bytes.present;
    committed_mark = bytes.mark;
    check_mark()
}

inline check_mark() {
    o = 0;
    do
    :: READ_AGAIN && o < committed_mark -> assert(journal[log[o]] != ABSENT); o++  /* nothing below it is left */
    :: else -> break
    od;
    o = 0
}

inline clear(bytes) {
    bytes.there = 0; bytes.valid = 0; bytes.known = 0; bytes.present = 0; bytes.offset = 0;
    bytes.mark = 0
}

inline copy_late(i) {
    late[i].there = 1; late[i].valid = net[i].valid; late[i].known = net[i].known;
    late[i].present = net[i].present; late[i].offset = net[i].offset; late[i].mark = net[i].mark
}

inline landed(i) {
    if
    :: p[i].same || READ_AGAIN == 0 -> take(i)
    :: else            /* whoever owns it now reads it: the mark is not above it */
    fi;
    decided(i)
}

inline take(i) {
    assert((fresh & FRESH(i)) == 0);
    fresh = fresh | FRESH(i);
    p[i].unfinished = p[i].unfinished | (UNFINISHED(i, RANGE(p[i].first, p[i].upto)));
    TO_POOL(i, RANGE(p[i].first, p[i].upto))
}

inline decided(i) {
    p[i].phase = NO_COMMIT;
    if
    :: REJOINS && (p[i].broken || (p[i].out && p[i].owns)) -> p[i].leaving = 1
    :: else
    fi;
    p[i].offset = 0; p[i].first = 0; p[i].upto = 0; p[i].mark = 0; p[i].broken = 0; p[i].out = 0;
    p[i].same = 0; p[i].answer = UNHEARD
}

/* The last word of who gives a partition up: not waited for. */
inline farewell(i) {
    if
    :: READ_AGAIN && p[i].owns && !p[i].asks ->
        last_word[i].there = 1; last_word[i].valid = in[i] && p[i].current;
        last_word[i].offset = (p[i].phase != NO_COMMIT && p[i].same -> p[i].offset : MAX(p[i].base, p[i].buffered));
        last_word[i].mark = LOW(i, (OPEN_WITH_RECORDS(i) -> p[i].first : BUFFERED(i)))
    :: else
    fi
}

/* The group */

inline new_generation() {
    net[0].valid = 0; net[1].valid = 0; late[0].valid = 0; late[1].valid = 0;
    last_word[0].valid = 0; last_word[1].valid = 0;
    p[0].current = 0; p[1].current = 0
}

/* Partitions */

inline gone(i) {   /* the partition is no longer ours */
    p[i].owns = 0; p[i].giving_up = 0; p[i].same = 0; p[i].asks = 0; p[i].base = 0;
    p[i].buffered = 0; p[i].position = 0; p[i].unfinished = 0;
    give_up(i)
}

inline give_up(i) {  /* what has not started */
    if
    :: READ_AGAIN -> p[i].hand = (p[i].runs > 0 -> p[i].hand & BIT(p[i].runs - 1) : 0)
    :: else
    fi;
    GIVEN_UP(i)
}

inline out_of_group(i) {
    in[i] = 0; target = NOBODY; net[i].known = 0; late[i].known = 0; new_generation();
    if
    :: owner == i -> owner = NOBODY
    :: else
    fi
}

/* Requests */

inline finished(i, o) {
    p[i].hand = p[i].hand & ~BIT(o); p[i].unfinished = p[i].unfinished & ~BIT(o);
    p[i].runs = 0; p[i].stage = 0
}

inline effect(o) {
    effects[log[o]]++;
    assert(effects[log[o]] <= 1);
#if EAGER == 0 && LOG == IDS && EXTERNAL == 0
    assert(o + 1 > last); last = o + 1;  /* one key: in the order of offsets */
#endif
}

#define INSTANCE(i) \
/* --- intake --- */ \
:: d_step { p[i].alive && p[i].owns && !p[i].asks && !p[i].giving_up && !p[i].leaving && p[i].position < end -> \
       SAY(i, "polls a record (%d)\n"); p[i].position++ } \
:: d_step { IDLE(i) && !p[i].giving_up && p[i].buffered < p[i].position -> \
       SAY(i, "commits what it has polled (%d)\n"); p[i].first = p[i].buffered; p[i].upto = p[i].position; p[i].buffered = p[i].position; \
       p[i].offset = MAX(p[i].base, p[i].upto); \
       p[i].mark = MARK_OF(i); send(i); EARLY(i) } \
:: d_step { IDLE(i) && READ_AGAIN && committer == i && LOW(i, BUFFERED(i)) > committed_mark -> /* only the mark */ \
       SAY(i, "tells its mark (%d)\n"); p[i].first = p[i].buffered; p[i].upto = p[i].buffered; p[i].offset = MAX(p[i].base, p[i].buffered); \
       p[i].mark = LOW(i, BUFFERED(i)); send(i) } \
:: d_step { p[i].alive && p[i].phase == SENT && p[i].answer != UNHEARD -> \
       SAY(i, "hears the answer (%d)\n"); if \
       :: p[i].answer == OK -> landed(i) \
       :: else -> p[i].out = (p[i].answer == PUT_OUT); p[i].answer = UNHEARD; NOT_OK(i) \
       fi } \
:: d_step { p[i].alive && p[i].phase == ASKED -> \
       SAY(i, "reads the committed offset back (%d)\n"); if \
       :: OURS(i) -> landed(i) \
       :: !OURS(i) && (!p[i].same || p[i].out) -> decided(i) \
       :: else -> p[i].phase = AGAIN \
       fi } \
:: d_step { p[i].alive && p[i].phase == AGAIN && !net[i].there -> \
       SAY(i, "sends its commit again, or drops it (%d)\n"); if \
       :: MAY_GO_AGAIN(i) -> p[i].current = in[i]; \
          p[i].phase = SENT; put_bytes(i) \
       :: else -> decided(i) \
       fi } \
/* --- partitions --- */ \
:: d_step { p[i].alive && p[i].joined && owner == i && in[i] && !p[i].owns && !p[i].leaving && target == NOBODY -> \
       SAY(i, "hears that the partition is its own (%d)\n"); p[i].owns = 1; p[i].current = 1; p[i].asks = 1 } \
:: d_step { p[i].alive && p[i].asks && owner == i -> SAY(i, "asks where to begin (%d)\n"); \
       p[i].asks = 0; p[i].base = committed; \
       p[i].buffered = (READ_AGAIN -> committed_mark : committed); p[i].position = p[i].buffered } \
:: d_step { p[i].alive && p[i].owns && in[i] && owner == i && target != NOBODY && !p[i].giving_up -> \
       SAY(i, "is asked to give the partition up (%d)\n"); p[i].giving_up = 1; give_up(i) } \
:: d_step { p[i].alive && p[i].giving_up -> SAY(i, "has given the partition up (%d)\n"); farewell(i); gone(i); owner = (owner == i -> NOBODY : owner) } \
:: d_step { p[i].alive && p[i].joined && in[i] && !p[i].current -> SAY(i, "hears of the generation (%d)\n"); p[i].current = 1 } \
:: d_step { p[i].alive && p[i].joined && !in[i] -> SAY(i, "hears that it was put out (%d)\n"); p[i].joined = 0; p[i].leaving = 0; gone(i) } \
:: d_step { p[i].alive && p[i].leaving && in[i] -> SAY(i, "leaves the group (%d)\n"); out_of_group(i); p[i].joined = 0; p[i].leaving = 0; gone(i) } \
:: d_step { p[i].alive && !p[i].joined && !in[i] && p[i].phase == NO_COMMIT -> \
       SAY(i, "joins the group (%d)\n"); new_generation(); in[i] = 1; p[i].joined = 1; p[i].current = 1 } \
/* --- workers --- */ \
:: d_step { p[i].alive && p[i].runs == 0 && p[i].hand != 0 -> \
       SAY(i, "starts the next request (%d)\n"); o = NEXT(i); \
       if \
       :: ANSWERED(o) -> finished(i, o) \
       :: else -> p[i].runs = o + 1; p[i].stage = 1 \
       fi; o = 0 } \
:: d_step { p[i].alive && p[i].stage == 1 && !IS_CALL(p[i].runs - 1) -> \
       SAY(i, "commits a transaction (%d)\n"); o = p[i].runs - 1; COMMIT_ROW(o); finished(i, o); o = 0 } \
:: d_step { p[i].alive && p[i].stage == 1 && IS_CALL(p[i].runs - 1) -> \
       SAY(i, "claims a call (%d)\n"); o = p[i].runs - 1; \
       if \
       :: ANSWERED(o) -> finished(i, o) \
       :: else -> CLAIM_CALL(o); p[i].stage = 2 \
       fi; o = 0 } \
:: d_step { p[i].alive && p[i].stage == 2 -> SAY(i, "makes a call (%d)\n"); o = p[i].runs - 1; effect(o); p[i].stage = 3; o = 0 } \
:: d_step { p[i].alive && p[i].stage == 3 -> \
       SAY(i, "journals a call (%d)\n"); o = p[i].runs - 1; journal[log[o]] = DONE; finished(i, o); o = 0 } \
:: d_step { p[i].orphan > 0 -> SAY(i, "left something behind that lands (%d)\n"); o = p[i].orphan - 1; \
       if \
       :: IS_CALL(o) -> effect(o) \
       :: else -> COMMIT_ROW(o) \
       fi; p[i].orphan = 0; o = 0 } \
:: d_step { p[i].orphan > 0 -> SAY(i, "left something behind that comes to nothing (%d)\n"); p[i].orphan = 0 } \
/* --- the broker --- */ \
:: d_step { net[i].there -> \
       SAY(i, "sent a commit that arrives (%d)\n"); if \
       :: net[i].valid -> apply(net[i], i); p[i].answer = (p[i].alive -> OK : UNHEARD) \
       :: else -> p[i].answer = (!p[i].alive -> UNHEARD : (net[i].known -> TRY_AGAIN : PUT_OUT)) \
       fi; clear(net[i]) } \
:: d_step { late[i].there -> \
       SAY(i, "sent a commit whose late bytes arrive (%d)\n"); if \
       :: late[i].valid -> apply(late[i], i) \
       :: else \
       fi; clear(late[i]) } \
:: d_step { last_word[i].there -> SAY(i, "has said its last word (%d)\n"); \
       if \
       :: last_word[i].valid -> apply(last_word[i], i) \
       :: else \
       fi; clear(last_word[i]) } \
:: d_step { late[i].there -> SAY(i, "sent a commit whose late bytes are lost (%d)\n"); clear(late[i]) } \
:: d_step { in[i] && owner == NOBODY && target != 1 - i -> \
       SAY(i, "is given the partition (%d)\n"); new_generation(); owner = i; target = NOBODY } \
:: d_step { in[i] && owner == 1 - i && in[1 - i] && p[1 - i].owns && target == NOBODY && moves > 0 -> SAY(i, "shall have the partition (%d)\n"); \
       moves--; target = i } \
:: d_step { in[i] && owner == 1 - i && in[1 - i] && p[1 - i].owns && target == NOBODY && moves > 0 -> SAY(i, "shall have the partition; a new generation (%d)\n"); \
       moves--; target = i; new_generation() } /* cooperative: commits fail until it is heard of */ \
:: d_step { !p[i].alive && in[i] -> SAY(i, "is missed: put out of the group (%d)\n"); out_of_group(i) } \
:: d_step { !p[i].alive && !in[i] && !net[i].there -> SAY(i, "starts again (%d)\n"); p[i].alive = 1 } \
/* --- faults --- */ \
:: d_step { FAULT && p[i].alive && (p[i].hand != 0 || p[i].phase != NO_COMMIT || p[i].owns) -> SAY(i, "FAULT: is killed (%d)\n"); faults--; KILL(i) } \
:: d_step { FAULT && in[i] && p[i].alive -> SAY(i, "FAULT: is put out of the group (%d)\n"); faults--; out_of_group(i) } \
:: d_step { FAULT && net[i].there && p[i].alive && net[i].valid -> \
       SAY(i, "FAULT: its commit lands, the reply is lost (%d)\n"); faults--; apply(net[i], i); p[i].broken = 1 } \
:: d_step { FAULT && net[i].there && p[i].alive && !late[i].there -> \
       SAY(i, "FAULT: its connection breaks (%d)\n"); faults--; copy_late(i); p[i].broken = 1 } \
:: d_step { FAULT && net[i].there && p[i].alive && !late[i].there -> \
       SAY(i, "FAULT: its client gives up waiting (%d)\n"); faults--; copy_late(i); clear(net[i]); p[i].broken = 1; p[i].answer = TRY_AGAIN } \
:: d_step { FAULT && net[i].there && p[i].alive && net[i].valid -> \
       SAY(i, "FAULT: is told an error, though it landed (%d)\n"); faults--; apply(net[i], i); clear(net[i]); p[i].answer = TRY_AGAIN } \
:: d_step { FAULT && net[i].there && p[i].alive -> \
       SAY(i, "FAULT: is told an error (%d)\n"); faults--; clear(net[i]); p[i].answer = TRY_AGAIN }

#define KILL(i) \
    p[i].orphan = (p[i].stage == 1 && !IS_CALL(p[i].runs - 1) -> p[i].runs : (p[i].stage == 2 -> p[i].runs : 0)); \
    p[i].alive = 0; p[i].joined = 0; p[i].leaving = 0; p[i].hand = 0; p[i].runs = 0; p[i].stage = 0; \
    p[i].phase = NO_COMMIT; p[i].offset = 0; p[i].first = 0; p[i].mark = 0; p[i].upto = 0; \
    p[i].broken = 0; p[i].out = 0; p[i].answer = UNHEARD; \
    late[i].present = 0; net[i].present = 0; \
    committed_present = (committer == i -> 0 : committed_present); gone(i)

#define FIRST_LEFT (journal[0] == ABSENT -> 0 : (journal[1 % IDS] == ABSENT -> 1 % IDS : 2 % IDS))
#define ALL_ENDED (journal[0] != ABSENT && journal[1 % IDS] != ABSENT && journal[2 % IDS] != ABSENT)

active proctype world() {
    byte o;
    d_step {
        do
        :: o < IDS -> log[o] = o; o++
        :: else -> break
        od;
        o = 0;
        p[0].alive = 1; p[0].joined = 1; p[0].current = 1; in[0] = 1;
        p[1].alive = 1; p[1].joined = 1; p[1].current = 1; in[1] = 1
    }
    do
    INSTANCE(0)
    INSTANCE(1)
    :: d_step { eager > 0 && end < LOG -> eager--; log[end] = FIRST_LEFT; end++ }
    :: else ->
        if
#if !defined(NO_RESEND)
        :: d_step { !ALL_ENDED && end < LOG -> log[end] = FIRST_LEFT; end++ }
#endif
        :: else -> break
        fi
    od;
    o = 0;
    do
    :: o < IDS -> assert(journal[o] != ABSENT && (journal[o] != DONE || effects[o] == 1)); o++
    :: else -> break
    od
}
