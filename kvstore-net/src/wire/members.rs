//! The members of a group in messages.

use kvstore_core::GroupMember;

use crate::proto;

/// Returns the members in a message.
pub(crate) fn members_of(members: &[proto::Member]) -> Vec<GroupMember> {
    let members = members.iter().map(|member| GroupMember {
        name: member.name.clone(),
        rank: member.rank,
        is_reader: member.is_reader,
    });
    members.collect()
}
