//! What the pages show that lead to a voucher, a shop's vouchers, and a user's own page. The
//! statements build the objects of the API, so that their fields stand in one place.

use sqlx::MySqlPool;

use super::{JsonObject, objects};
use crate::domain::UserId;
use crate::store::StoreError;

/// Shops, kinds of shops, posts, vouchers of shops, and what users say of themselves.
#[derive(Clone)]
pub struct DianpingPages {
    pool: MySqlPool,
}

/// A time without zone, as hm-dianping writes it.
macro_rules! at {
    ($column:literal) => {
        concat!("DATE_FORMAT(", $column, ", '%Y-%m-%dT%H:%i:%s')")
    };
}

// The columns of counts are ZEROFILL there, and `007` is no number in JSON: a sum has no zeros.
macro_rules! shop {
    ($distance:literal) => {
        concat!(
            "SELECT CAST(JSON_OBJECT('id', s.id, 'name', s.name, 'typeId', s.type_id, \
             'images', s.images, 'area', s.area, 'address', s.address, 'x', s.x, 'y', s.y, \
             'avgPrice', s.avg_price, 'sold', s.sold + 0, 'comments', s.comments + 0, \
             'score', s.score + 0, 'openHours', s.open_hours, 'createTime', ",
            at!("s.create_time"),
            ", 'updateTime', ",
            at!("s.update_time"),
            ", 'distance', ",
            $distance,
            ") AS CHAR) FROM tb_shop s"
        )
    };
}

macro_rules! blogs {
    ($which:literal) => {
        concat!(
            "SELECT CAST(JSON_OBJECT('id', b.id, 'shopId', b.shop_id, 'userId', b.user_id, \
             'title', b.title, 'images', b.images, 'content', b.content, 'liked', b.liked + 0, \
             'comments', b.comments + 0, 'name', u.nick_name, 'icon', u.icon, 'createTime', ",
            at!("b.create_time"),
            ", 'updateTime', ",
            at!("b.update_time"),
            ") AS CHAR) FROM tb_blog b LEFT JOIN tb_user u ON u.id = b.user_id ",
            $which
        )
    };
}

/// A number of one digit that is `true` or `false` there.
macro_rules! flag {
    ($column:literal) => {
        concat!("JSON_EXTRACT(IF(", $column, " > 0, 'true', 'false'), '$')")
    };
}

const SHOP: &str = concat!(shop!("NULL"), " WHERE s.id = ?");
const SHOPS: &str = concat!(shop!("NULL"), " WHERE s.type_id = ? ORDER BY s.id LIMIT ? OFFSET ?");
const SHOPS_NEAR: &str = concat!(
    shop!("ST_Distance_Sphere(POINT(s.x, s.y), POINT(?, ?))"),
    " WHERE s.type_id = ? ORDER BY ST_Distance_Sphere(POINT(s.x, s.y), POINT(?, ?)), s.id \
     LIMIT ? OFFSET ?"
);
const SHOP_TYPES: &str = "SELECT CAST(JSON_OBJECT('id', id, 'name', name, 'icon', icon, \
     'sort', sort) AS CHAR) FROM tb_shop_type ORDER BY sort, id LIMIT 100";
const HOT_BLOGS: &str = blogs!("ORDER BY b.liked DESC, b.id LIMIT ? OFFSET ?");
const BLOGS_OF_USER: &str = blogs!("WHERE b.user_id = ? ORDER BY b.id LIMIT ? OFFSET ?");
const USER_INFO: &str = concat!(
    "SELECT CAST(JSON_OBJECT('userId', user_id, 'city', city, 'introduce', introduce, \
     'fans', fans, 'followee', followee, 'gender', ",
    flag!("gender"),
    ", 'birthday', DATE_FORMAT(birthday, '%Y-%m-%d'), 'credits', credits, 'level', ",
    flag!("level"),
    ") AS CHAR) FROM tb_user_info WHERE user_id = ?"
);
const VOUCHERS: &str = concat!(
    "SELECT CAST(JSON_OBJECT('id', v.id, 'shopId', v.shop_id, 'title', v.title, \
     'subTitle', v.sub_title, 'rules', v.rules, 'payValue', v.pay_value, \
     'actualValue', v.actual_value, 'type', v.type, 'status', v.status, 'stock', k.stock, \
     'beginTime', ",
    at!("k.begin_time"),
    ", 'endTime', ",
    at!("k.end_time"),
    ") AS CHAR) FROM tb_voucher v LEFT JOIN tb_seckill_voucher k ON k.voucher_id = v.id \
     WHERE v.shop_id = ? AND v.status = 1 ORDER BY v.id LIMIT 1000"
);

/// The shops of a page.
const SHOPS_A_PAGE: u32 = 5;
/// The posts of a page.
const BLOGS_A_PAGE: u32 = 10;

impl DianpingPages {
    /// Those of that database.
    pub fn new(pool: MySqlPool) -> Self {
        Self { pool }
    }

    /// The vouchers of a shop that are on sale, at most 1000.
    pub async fn vouchers(&self, shop: u64) -> Result<Vec<JsonObject>, StoreError> {
        objects(&self.pool, sqlx::query(VOUCHERS).bind(shop)).await
    }

    /// A shop.
    pub async fn shop(&self, id: u64) -> Result<Option<JsonObject>, StoreError> {
        Ok(objects(&self.pool, sqlx::query(SHOP).bind(id)).await?.pop())
    }

    /// The kinds of shops, at most 100.
    pub async fn shop_types(&self) -> Result<Vec<JsonObject>, StoreError> {
        objects(&self.pool, sqlx::query(SHOP_TYPES)).await
    }

    /// A page of the shops of a kind, counted from 1; the nearest first if a place is given.
    pub async fn shops(
        &self,
        kind: u64,
        page: u32,
        near: Option<[f64; 2]>,
    ) -> Result<Vec<JsonObject>, StoreError> {
        let query = match near {
            None => sqlx::query(SHOPS).bind(kind),
            Some([x, y]) => sqlx::query(SHOPS_NEAR).bind(x).bind(y).bind(kind).bind(x).bind(y),
        };
        let query = query.bind(SHOPS_A_PAGE).bind((page - 1) * SHOPS_A_PAGE);
        objects(&self.pool, query).await
    }

    /// A page of the posts, counted from 1, the most liked first.
    pub async fn hot_blogs(&self, page: u32) -> Result<Vec<JsonObject>, StoreError> {
        let query = sqlx::query(HOT_BLOGS).bind(BLOGS_A_PAGE).bind((page - 1) * BLOGS_A_PAGE);
        objects(&self.pool, query).await
    }

    /// A page of a user's posts, counted from 1.
    pub async fn blogs_of(&self, user: UserId, page: u32) -> Result<Vec<JsonObject>, StoreError> {
        let query = sqlx::query(BLOGS_OF_USER).bind(user.0);
        let query = query.bind(BLOGS_A_PAGE).bind((page - 1) * BLOGS_A_PAGE);
        objects(&self.pool, query).await
    }

    /// What a user says on the own page; most have said nothing.
    pub async fn user_info(&self, user: u64) -> Result<Option<JsonObject>, StoreError> {
        Ok(objects(&self.pool, sqlx::query(USER_INFO).bind(user)).await?.pop())
    }
}
